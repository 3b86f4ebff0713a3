"""One comparison: functions that are timed by turns, and the ratios that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxp.bench.timing import by_turns


class Ratio(NamedTuple):
    """What is compared: the time of ``of`` over that of ``against``, times ``factor``."""

    of: str
    against: str
    goal: float | None = None
    """The ratio that it should not exceed; None where there is no goal."""
    factor: float = 1.0


class Contest(NamedTuple):
    """Functions that are timed by turns, and the ratios of their times."""

    functions: Mapping[str, Callable[[], Any]]
    ratios: list[Ratio]
    calls: int = 1
    """How often a function is called in its turn: many times where one call takes microseconds."""


def result(contest: Contest, repeats: int) -> dict[str, Any]:
    """Milliseconds of each function (median and quartiles), and the ratios of the medians."""
    turns = {name: _repeated(function, contest.calls) for name, function in contest.functions.items()}
    times = by_turns(turns, repeats=repeats, warmup=2)
    ms = {name: [1e3 * seconds / contest.calls for seconds in found] for name, found in times.items()}
    ratios = [
        {
            "of": ratio.of,
            "against": ratio.against,
            "goal": ratio.goal,
            "ratio": ratio.factor * ms[ratio.of][0] / ms[ratio.against][0],
        }
        for ratio in contest.ratios
    ]
    return {"ms": ms, "ratios": ratios}


def _repeated(function: Callable[[], Any], calls: int) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(calls):
            function()

    return turn
