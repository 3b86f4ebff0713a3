"""Peak memory, measured on Linux in a separate process for each backend and dtype."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.bench.plan import Plan
from tinyxp.bench.work import Work, head, prefill, step
from tinyxp.engine import engine_of

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Memory(NamedTuple):
    """Bytes that the process grew by; None if the system does not count them."""

    peak: int | None
    """By prefill and steps, weights included."""
    head_all: int | None
    """By a prefill with the head at every position."""
    head_last: int | None
    """By a prefill with the head at the last position only."""


UNCOUNTED = Memory(None, None, None)


def peak_memory(plan: Plan, backend: str, dtype: str) -> Memory:
    """Measure the memory of one backend in one dtype.

    Raise RuntimeError with the last line of the process's output if it fails.
    """
    if not RESET.exists():
        return UNCOUNTED
    task = json.dumps(asdict(plan) | {"backends": [backend], "dtypes": [dtype]})
    command = [sys.executable, "-m", "tinyxp.bench.memory", task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.splitlines() or [f"status {done.returncode}"])[-1]
        raise RuntimeError(f"measuring the memory of {backend} in {dtype} failed: {reason}")
    return Memory(*json.loads(done.stdout.splitlines()[-1]))


def measure_here(plan: Plan) -> Memory:
    """Measure the memory of this process, for the plan's one backend and dtype."""
    backend = registry.backend(plan.backends[0])
    backend.synchronize(backend.from_numpy(np.zeros(1, dtype=np.float32)))  # starts the library
    before = _bytes("VmRSS")
    params = engine_of(backend).prepare(plan.params(backend, plan.dtypes[0]))

    def run() -> None:
        prefill(params, 1, plan.prompt_tokens)()
        one = step(params, 1, plan.prompt_tokens, plan.steps)
        for _ in range(plan.steps):
            one()

    peak = _peak(run) - before
    params = plan.params(backend, plan.dtypes[0])
    heads = [head(params, plan.prompt_tokens, last=last) for last in (False, True)]
    for work in heads:
        work()  # compiles, which is not to be counted
    return Memory(peak, *(_growth(work) for work in heads))


def _growth(work: Work) -> int:
    """The bytes that the process grows by at most during the work."""
    _trim()
    before = _bytes("VmRSS")
    return _peak(work) - before


def _peak(work: Work) -> int:
    """The bytes of the process at most during the work."""
    _trim()
    RESET.write_text("5")  # resets the peak to the current size
    work()
    return _bytes("VmHWM")


def _trim() -> None:
    """Return freed memory to the system: reusing it would hide what the next work needs."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _bytes(field: str) -> int:
    """A field of the process's status, which is in kB."""
    match = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text())
    assert match is not None
    return 1024 * int(match[1])


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    fields = task | {name: tuple(task[name]) for name in ("backends", "dtypes")}
    print(json.dumps(measure_here(Plan(**fields))))
