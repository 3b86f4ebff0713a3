"""The machine and the libraries of a measurement."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tinyxp.registry import available_backends, backend


def describe_machine(backends: Iterable[str], threads: int | None) -> dict[str, Any]:
    """Return what a measurement depends on.

    Keys: cpu, cores that this process may use, threads that the libraries were limited to, load (the number
    of running processes in the last minute), system, and versions of Python, tinyxp and the libraries.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    versions = available_backends()
    return {
        "cpu": _cpu(),
        "cores": cores,
        "threads": threads,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "tinyxp": version("tinyxp"),
            **{name: versions[name] for name in ("numpy", *(backend(name).name for name in backends))},
        },
    }


def _cpu() -> str:
    """The processor's name, as the system gives it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
