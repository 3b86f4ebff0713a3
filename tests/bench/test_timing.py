"""Interleaved measurements: the order of the calls, and the quartiles."""

from __future__ import annotations

import pytest

from tinyxp.bench.timing import Times, interleave, time_call


def test_functions_take_turns_and_the_warm_up_does_not_count() -> None:
    calls: list[str] = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    found = interleave(functions, repeats=3, warmup=2, rest=0.0)
    assert "".join(calls) == "abab" + "abbaab"
    assert set(found) == {"a", "b"}
    assert all(0 <= times.low <= times.median <= times.high for times in found.values())


def test_times_are_the_median_and_the_quartiles() -> None:
    assert Times.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Times(3.0, 2.0, 4.0)
    assert Times.of([2.0]) == Times(2.0, 2.0, 2.0)


def test_a_function_is_called_once_for_its_time() -> None:
    calls: list[int] = []
    assert time_call(lambda: calls.append(1)) >= 0
    assert calls == [1]


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 1), (3, -1)])
def test_counts_without_sense_are_refused(repeats: int, warmup: int) -> None:
    with pytest.raises(ValueError, match=f"repeats is {repeats} and warmup {warmup}"):
        interleave({}, repeats=repeats, warmup=warmup)
