"""The result of a comparison: a row for each trace point, the first that differs, and the next tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import axes
from tinyxp.doctor.sides import Side
from tinyxp.doctor.traces import Batch, Trace


class Verdict(StrEnum):
    """What a trace point shows."""

    EXACT = "exact"  # equal to the last bit
    NOISE = "noise"  # different by no more than rounding
    FAULT = "fault"  # wrong
    CARRIED = "carried"  # wrong only because its inputs are
    SHAPE = "shape"  # of another shape


class AtFault(StrEnum):
    """Which side is wrong at a trace point."""

    NONE = ""
    A = "A"
    B = "B"
    BOTH = "A and B"
    EITHER = "A or B"  # without a reference run it is not known which

    @property
    def sides(self) -> frozenset[str]:
        """The sides known or suspected to be wrong."""
        return frozenset(side for side in ("A", "B") if side in self.value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One trace point."""

    point: str
    shape: tuple[int, ...]
    verdict: Verdict
    at_fault: AtFault = AtFault.NONE
    excess: float = 0.0  # the error as a multiple of the rounding limit
    distance: Distance | None = None  # of B from A
    error_a: Distance | None = None  # from the reference run
    error_b: Distance | None = None
    noise: Distance | None = None  # the error of a correct implementation in the judged side's dtype
    moved: float = 0.0  # how far rounding may move the difference of two of its elements
    positions: tuple[float, ...] = ()  # rms of B - A by position
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # if they differ
    value_a: float = 0.0  # at the worst element
    value_b: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether the two sides differ here by more than rounding."""
        return self.verdict in (Verdict.FAULT, Verdict.CARRIED, Verdict.SHAPE)

    @property
    def place(self) -> str:
        """The index of the worst element, as reports print it."""
        if self.distance is None or self.distance.worst == 0.0:
            return ""
        return ", ".join(f"{axis} {i}" for axis, i in zip(axes(self.point), self.distance.at, strict=True))


class Token(NamedTuple):
    """The first position whose likeliest next tokens differ."""

    row: int
    position: int
    a: int
    b: int
    margin_a: float  # A's logit of its token minus A's logit of B's token
    margin_b: float  # B's logit of its token minus B's logit of A's token
    is_tie: bool  # whether rounding explains the difference


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Where two sides differ first, and whether it matters."""

    a: Side
    b: Side
    batch: Batch
    trace_a: Trace
    trace_b: Trace
    rows: tuple[Row, ...]
    first: Row | None  # the first row that differs
    judged: str  # "A" or "B": the side in doubt
    reference: str  # whose weights the reference run has; empty if there is no such run
    noise: str  # how the rounding limit is found
    notes: tuple[str, ...] = ()
    token: Token | None = None
    predictions: int = 0  # how many next tokens were compared
    generated: int = 0  # how many of the ids are A's greedy continuation

    @property
    def agrees(self) -> bool:
        return self.first is None

    @property
    def matters(self) -> bool | None:
        """Whether the last common point differs too; None if nothing differs."""
        return None if self.first is None else self.rows[-1].differs

    def row(self, point: str) -> Row | None:
        """Return the row of a point, if both sides have it."""
        return next((row for row in self.rows if row.point == point), None)
