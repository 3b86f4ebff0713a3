"""What is worth knowing of a comparison besides its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tinyxp.doctor.distance import narrow_dtype
from tinyxp.doctor.points import ordered
from tinyxp.doctor.sides import Trace
from tinyxp.doctor.verdicts import Comparison


def notes(found: Comparison, of_a: Trace, of_b: Trace) -> list[str]:
    """All of them."""
    return [*_missing(of_a, of_b), *_overflow(found), *_shared(found), *_digits(found, of_a, of_b)]


def some(names: Iterable[str]) -> str:
    """The first few names, for a sentence."""
    first = list(names)
    return ", ".join(first[:3]) + ("..." if len(first) > 3 else "")


def _missing(of_a: Trace, of_b: Trace) -> Iterator[str]:
    """Points that only one side has."""
    for name, mine, other, theirs in (("A", of_a, "B", of_b), ("B", of_b, "A", of_a)):
        only = ordered(mine.keys() - theirs.keys())
        if only and len(theirs) > 1:
            yield f"{len(only)} trace points of {name} are not in {other}: {some(only)}"


def _overflow(found: Comparison) -> Iterator[str]:
    """Where a dtype holds no numbers that large, right or wrong."""
    endless = [row.point for row in found.rows if row.noise is not None and not np.isfinite(row.noise.rms)]
    if endless:
        yield (
            f"a right implementation in this dtype overflows too: nothing can be told of {len(endless)} "
            f"trace points, from {endless[0]} on"
        )


def _shared(found: Comparison) -> Iterator[str]:
    """Where both sides are off the truth, and off it alike."""
    alike = [row for row in found.rows if not row.parts and row.excess > 1.0]
    if alike:
        yield (
            f"both are off the truth alike at {len(alike)} trace points, first at {alike[0].point}, by "
            f"{alike[0].excess:.3g} times what rounding may cost: they agree, which does not make them right"
        )


def _digits(found: Comparison, of_a: Trace, of_b: Trace) -> Iterator[str]:
    """A side at fault that has fewer digits than its dtype."""
    for letter, side, trace in (("A", found.a, of_a), ("B", found.b, of_b)):
        at_fault = found.first is not None and letter in found.first.at_fault
        if at_fault and (narrow := narrow_dtype(trace, side.dtype or "float32")):
            yield (
                f"nearly all values of {letter} are {narrow} numbers; if it is meant to compute in {narrow}, "
                f"{side.spelled(narrow)}"
            )
