"""What fits share: the values of both sides at a point, and faults that are read off."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.choices import F
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.held import Error, Held
from tinyxp.doctor.points import kind
from tinyxp.doctor.traces import compared_mask
from tinyxp.doctor.variant import Variant

Fit = tuple[Fault, Error]


def values(held: Held, v: Variant, point: str) -> tuple[F, F, F]:
    """The side's values at a point and a variant's on the side's own inputs, both in the point's shape, and
    which of them count, as bool that broadcasts to it."""
    found = held.trace[point].astype(np.float64)
    return found, held.right_at(v, point), compared_mask(point, found.shape, held.batch)


def tried(held: Held, v: Variant, fault: Fault, point: str) -> Fit | None:
    """The fault and what it leaves at a point; None where that is more than rounding."""
    error = held.error(point, held.right_at(fault.plant(v), point))
    return (fault, error) if error.excess <= 1.0 else None


def given(key: str, says: str, fix: str, shows: tuple[str, ...]) -> Fault:
    """A fault that was read off, and is not planted."""
    return Fault(key, says, fix, tuple(kind(point) for point in shows), lambda v: v)
