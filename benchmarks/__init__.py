"""Speed against peers and against this machine's limits: ``python -m benchmarks``, from the repository."""
