"""The machine and the libraries that a measurement is made with."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tinyxp


def machine(backends: Iterable[str], threads: int | None) -> dict[str, Any]:
    """cpu, cores that this process may use, threads that the libraries were told, load (how many processes
    wanted to compute in the minute before), and versions of Python, tinyxp and the libraries."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    versions = tinyxp.available_backends()
    return {
        "cpu": _cpu(),
        "cores": cores,
        "threads": threads,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "tinyxp": tinyxp.__version__,
            **{name: versions[name] for name in ("numpy", *(tinyxp.backend(b).name for b in backends))},
        },
    }


def _cpu() -> str:
    """The processor's name, as the system gives it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
