"""The time that a search may take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tinyxp.doctor import budget


def test_time_runs_out_once_and_the_clock_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    reads: list[float] = []

    def monotonic() -> float:
        reads.append(now[0])
        return now[0]

    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=monotonic))
    left = budget.Budget(5.0)
    now[0] = 5.0
    assert left.is_left()
    assert not left.ran_out
    now[0] = 5.1
    assert not left.is_left()
    assert left.ran_out
    count = len(reads)
    now[0] = 0.0
    assert not left.is_left()
    assert len(reads) == count
