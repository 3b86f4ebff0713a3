"""Peak memory, measured in a process of its own for each backend and dtype, where Linux counts it."""

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
    """Bytes beyond what the process held before; None where the system does not count them."""

    peak: int | None
    """Of prefill and steps, weights included, over the process before the weights were made."""
    head_all: int | None
    """Of a prefill with the head at every position, over the process just before it."""
    head_last: int | None
    """The same with the head at the last position alone."""


UNCOUNTED = Memory(None, None, None)


def memory(plan: Plan, backend: str, dtype: str) -> Memory:
    """The memory of one backend in one dtype; RuntimeError with its last line where the process fails."""
    if not RESET.exists():
        return UNCOUNTED
    task = json.dumps(asdict(plan) | {"backends": [backend], "dtypes": [dtype]})
    command = [sys.executable, "-m", "tinyxp.bench.memory", task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.splitlines() or [f"status {done.returncode}"])[-1]
        raise RuntimeError(f"measuring the memory of {backend} in {dtype} failed: {reason}")
    return Memory(*json.loads(done.stdout.splitlines()[-1]))


def measured(plan: Plan) -> Memory:
    """The memory of this process, for the plan's one backend and dtype."""
    backend = registry.backend(plan.backends[0])
    backend.synchronize(backend.from_numpy(np.zeros(1, dtype=np.float32)))  # so that the library has started
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
        work()  # what compiling takes is not the head's
    return Memory(peak, *(_growth(work) for work in heads))


def _growth(work: Work) -> int:
    """How many bytes the process grows by at most while it works."""
    _trim()
    held = _bytes("VmRSS")
    return _peak(work) - held


def _peak(work: Work) -> int:
    """How many bytes the process holds at most while it works."""
    _trim()
    RESET.write_text("5")  # the peak is now what is held
    work()
    return _bytes("VmHWM")


def _trim() -> None:
    """Gives back what earlier work left to be used again, which would hide what later work takes."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _bytes(field: str) -> int:
    """A field of the process's status, which is in kB."""
    found = re.search(rf"{field}:\s*(\d+) kB", STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    fields = given | {name: tuple(given[name]) for name in ("backends", "dtypes")}
    print(json.dumps(measured(Plan(**fields))))
