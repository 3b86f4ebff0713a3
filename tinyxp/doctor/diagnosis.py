"""The result of a diagnosis: causes, how certain each is, and what was checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.verdicts import Comparison


class Confidence(StrEnum):
    """How certain a cause is."""

    PROVED = "proved"
    """The side itself agrees once only what is at fault is corrected."""
    CERTAIN = "certain"
    """With the fault, the trusted model computes the side's values, to rounding."""
    LIKELY = "likely"
    """The values are like those of the fault, but the fault cannot be computed exactly."""
    UNKNOWN = "unknown"
    """Nothing explains the point."""


@dataclass(frozen=True)
class Cause:
    """One cause; or, if ``keys`` is empty, a point that nothing explains."""

    keys: tuple[str, ...]
    sentence: str
    fix: str
    point: str
    points: tuple[str, ...]  # every point that it explains
    confidence: Confidence
    blocks: tuple[int, ...] | None = None  # None: every block, or none in particular
    before: Distance | None = None  # the error at the point; None if the side as a whole is at fault
    after: Distance | None = None  # the error with the cause put into the trusted model
    alike: tuple[str, ...] = ()  # other causes with the same effect
    closest: tuple[str, ...] = ()  # if nothing explains the point: what comes closest
    closed: float = 0.0  # the part of the error that the closest explains, from 0 to 1


@dataclass(frozen=True)
class Diagnosis:
    """Why two sides differ.

    ``before`` is the error of the side in doubt at the last common point, in a run from the ids; ``after`` is
    the error with all causes put into the trusted model. ``agrees_after``: it is rounding, at every point.
    """

    comparison: Comparison
    causes: tuple[Cause, ...] = ()
    before: Distance | None = None
    after: Distance | None = None
    agrees_after: bool = False
    proof: str = ""
    notes: tuple[str, ...] = ()
    ran_out: bool = False

    @property
    def explained(self) -> bool:
        """Whether there is a cause for every point that differs by itself."""
        return bool(self.causes) and all(cause.keys for cause in self.causes)
