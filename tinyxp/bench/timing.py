"""Times of several functions, measured by turns, so that a machine that slows down slows them all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

Name = TypeVar("Name")
REST = 0.1
"""Seconds before each call. The threads of a library that has just computed go on waiting busily for more,
and would take cores from the next: without a rest NumPy seems twice as slow after another library's turn."""


class Times(NamedTuple):
    """The median of several measurements, and their lower and upper quartile, in seconds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Times:
        """Those of measurements in seconds, of which there is one at least."""
        low, median, high = np.quantile(list(seconds), (0.25, 0.5, 0.75)).tolist()
        return cls(median, low, high)


def by_turns(
    functions: Mapping[Name, Callable[[], Any]], *, repeats: int = 7, warmup: int = 1, rest: float = REST
) -> dict[Name, Times]:
    """The times of each function over ``repeats`` rounds of all of them, after ``warmup`` rounds that do not
    count.

    A function returns when its work is done: one that only enqueues it waits for it too. Every other round
    runs in reverse, so that none always follows the same other, and ``rest`` seconds pass before each call.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats is {repeats} and warmup {warmup}; they must be at least 1 and 0")
    for _ in range(warmup):
        for function in functions.values():
            function()
    seconds: dict[Name, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for _ in range(repeats):
        for name in names:
            time.sleep(rest)
            seconds[name].append(timed(functions[name]))
        names.reverse()
    return {name: Times.of(found) for name, found in seconds.items()}


def timed(function: Callable[[], Any]) -> float:
    """How long one call takes, in seconds."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
