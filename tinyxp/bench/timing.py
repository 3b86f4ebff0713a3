"""Times of several functions, interleaved, so that a slow moment of the machine affects all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

Name = TypeVar("Name")
REST = 0.1
"""Seconds before each call. The threads of a library that has just computed keep waiting busily for more work
and take cores from the next: without a rest NumPy seems twice as slow after another library."""


class Times(NamedTuple):
    """The median of several measurements, and their lower and upper quartile, in seconds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Times:
        """Return the times of one or more measurements in seconds."""
        low, median, high = np.quantile(list(seconds), (0.25, 0.5, 0.75)).tolist()
        return cls(median, low, high)


def interleave(
    functions: Mapping[Name, Callable[[], Any]], *, repeats: int = 7, warmup: int = 1, rest: float = REST
) -> dict[Name, Times]:
    """Measure each function in ``repeats`` rounds of all of them, after ``warmup`` rounds that do not count.

    A function must return when its work is done; one that enqueues work must wait for it. Every other round
    runs in reverse order, so that no function always follows the same one. ``rest`` seconds pass before each
    call.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats is {repeats} and warmup {warmup}; they must be at least 1 and 0")
    for _ in range(warmup):
        for function in functions.values():
            function()
    durations: dict[Name, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for _ in range(repeats):
        for name in names:
            time.sleep(rest)
            durations[name].append(time_call(functions[name]))
        names.reverse()
    return {name: Times.of(seconds) for name, seconds in durations.items()}


def time_call(function: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
