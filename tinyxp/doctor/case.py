"""The case of a diagnosis: the trusted side, the side in doubt, and its values."""

from __future__ import annotations

from typing import NamedTuple

from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.sides import Side
from tinyxp.doctor.traces import Batch, Points
from tinyxp.doctor.verdicts import Comparison


class Case(NamedTuple):
    """One side in doubt, compared with the weights of the other."""

    comparison: Comparison
    base: Side
    side: Side
    weights: WeightSource  # the trusted side's
    batch: Batch
    points: Points  # of the side in doubt
    dtype: str  # in which the side in doubt computes

    @property
    def it(self) -> str:
        """The letter of the side in doubt."""
        return self.comparison.judged

    @property
    def other(self) -> str:
        """The letter of the trusted side."""
        return "A" if self.it == "B" else "B"
