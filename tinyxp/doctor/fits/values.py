"""What fits share: the values of both sides at a point, and the faults that are read off them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.points import kind
from tinyxp.doctor.rounding import Error
from tinyxp.doctor.traces import compared_mask
from tinyxp.doctor.variant import Variant

Fit = tuple[Fault, Error]
"""A fault, and the error that it leaves at the point."""


class Values(NamedTuple):
    """The values at one point, in float64."""

    theirs: np.ndarray  # the side's own
    right: np.ndarray  # a variant's, on the side's own inputs
    counts: np.ndarray  # bool: which are compared; broadcasts to theirs

    @property
    def have_one_shape(self) -> bool:
        return self.theirs.shape == self.right.shape

    @property
    def are_finite(self) -> bool:
        return bool(np.isfinite(self.theirs).all())


def values_at(evidence: Evidence, v: Variant, point: str) -> Values:
    """The values of the side and of a variant at a point."""
    theirs = evidence.points[point].astype(np.float64)
    return Values(theirs, evidence.value(v, point), compared_mask(point, theirs.shape, evidence.batch))


def read_fault(key: str, says: str, fix: str, point: str) -> Fault:
    """A fault that was read off the values at a point, and is not computed."""
    return Fault(key, says, fix, (kind(point),), None)
