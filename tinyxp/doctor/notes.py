"""What is worth knowing about a comparison besides its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tinyxp.doctor.distance import narrow_dtype
from tinyxp.doctor.points import sort_points
from tinyxp.doctor.sides import Side
from tinyxp.doctor.traces import Trace
from tinyxp.doctor.verdicts import Row

Run = tuple[Side, Trace]


def find_notes(rows: Sequence[Row], first: Row | None, runs: tuple[Run, Run]) -> Iterator[str]:
    """Yield every note on a comparison of two runs."""
    yield from _missing(runs)
    yield from _overflow(rows)
    yield from _shared(rows)
    if first is not None:
        yield from _digits(first, runs)


def list_some(names: Iterable[str]) -> str:
    """Return the first few names, separated by commas."""
    first = list(names)
    return ", ".join(first[:3]) + ("..." if len(first) > 3 else "")


def _missing(runs: tuple[Run, Run]) -> Iterator[str]:
    """Points that only one side has; a side that gives one point alone was not asked for more."""
    (_, a), (_, b) = runs
    for name, mine, other, theirs in (("A", a.points, "B", b.points), ("B", b.points, "A", a.points)):
        only = sort_points(mine.keys() - theirs.keys())
        if only and len(theirs) > 1:
            yield f"{len(only)} trace points of {name} are missing in {other}: {list_some(only)}"


def _overflow(rows: Sequence[Row]) -> Iterator[str]:
    """Points whose values are too large for the dtype even in a correct implementation."""
    points = [row.point for row in rows if row.noise is not None and not np.isfinite(row.noise.rms)]
    if points:
        yield (
            "a correct implementation in this dtype overflows too: no verdict is possible on "
            f"{len(points)} trace points, from {points[0]} on"
        )


def _shared(rows: Sequence[Row]) -> Iterator[str]:
    """Points where both sides differ from the reference run in the same way."""
    alike = [row for row in rows if not row.differs and row.excess > 1.0]
    if alike:
        yield (
            f"both sides have the same error at {len(alike)} trace points, first at {alike[0].point}, "
            f"{alike[0].excess:.3g} times the rounding limit: they agree, but both may be wrong"
        )


def _digits(first: Row, runs: tuple[Run, Run]) -> Iterator[str]:
    """A side at fault whose values have fewer digits than its dtype."""
    for name, (side, trace) in zip("AB", runs, strict=True):
        if name in first.at_fault.sides and (narrow := narrow_dtype(trace.points, trace.dtype)):
            yield (
                f"nearly all values of {name} are {narrow} numbers; if it is meant to compute in {narrow}, "
                f"{side.suggest_dtype(narrow)}"
            )
