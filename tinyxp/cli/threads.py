"""The number of threads of numerical libraries."""

from __future__ import annotations

import os

# Every numerical library reads one of these once, when it is imported.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NPROC",
)


def limit_threads(threads: int | None) -> None:
    """Limit the threads of libraries that are imported from now on; None: no limit."""
    if threads is not None:
        os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
