"""Speed compared with peers and with the limits of this machine: ``python -m benchmarks``."""
