"""One comparison: functions whose calls are interleaved, and the ratios of their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxp.bench.timing import interleave


class Ratio(NamedTuple):
    """A comparison: factor times the time of ``of`` over that of ``against``."""

    of: str
    against: str
    goal: float | None = None
    """The ratio that it should not exceed; None: no goal."""
    factor: float = 1.0


class Contest(NamedTuple):
    """Functions to time, interleaved, and the ratios of their times."""

    functions: Mapping[str, Callable[[], Any]]
    ratios: list[Ratio]
    calls: int = 1
    """Calls of a function in its turn: many if one call takes microseconds."""


def result(contest: Contest, repeats: int) -> dict[str, Any]:
    """Return the milliseconds of each function (median and quartiles), and the ratios of the medians."""
    turns = {name: _repeated(function, contest.calls) for name, function in contest.functions.items()}
    times = interleave(turns, repeats=repeats, warmup=2)
    ms = {name: [1e3 * seconds / contest.calls for seconds in each] for name, each in times.items()}
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
