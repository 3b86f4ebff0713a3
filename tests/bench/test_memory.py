"""Memory: the weights are part of the peak, and a failing process is an error with its last line."""

from __future__ import annotations

import sys

import pytest

import tinyxp
from tinyxp.bench import memory
from tinyxp.bench.memory import UNCOUNTED, peak_memory
from tinyxp.bench.plan import Plan

PLAN = Plan(model="tiny", backends=("numpy",), repeats=1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")
def test_the_peak_has_the_weights() -> None:
    plan = Plan(model="book", backends=("numpy",), repeats=1, prompt=4)
    found = peak_memory(plan, "numpy", "float32")
    assert found.peak is not None
    assert found.head_all is not None
    assert found.head_last is not None
    weights = 4 * tinyxp.count_parameters(tinyxp.Config.preset("book"))["total"]
    assert weights < found.peak < 10 * weights


def test_a_system_that_counts_nothing_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "RESET", memory.RESET / "nothing")
    assert peak_memory(PLAN, "numpy", "float32") is UNCOUNTED


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts it")
def test_a_failing_process_is_an_error_with_its_last_line() -> None:
    with pytest.raises(
        RuntimeError, match="measuring the memory of cupy in float32 failed: ValueError: backend"
    ):
        peak_memory(PLAN, "cupy", "float32")
