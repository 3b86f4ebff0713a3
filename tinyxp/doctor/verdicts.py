"""What a comparison found: a row for each trace point, the first that parts, and the next tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import Batch, axes
from tinyxp.doctor.sides import Side

EXACT, NOISE, FAULT, CARRIED, SHAPE = "exact", "noise", "fault", "carried", "shape"
"""Equal to the last bit; apart by rounding; wrong; wrong because its inputs are; of another shape."""


@dataclass
class Row:
    """One trace point."""

    point: str
    shape: tuple[int, ...]
    verdict: str
    distance: Distance | None = None  # of B from A
    error_a: Distance | None = None  # from the truth
    error_b: Distance | None = None
    noise: Distance | None = None  # the error of a right implementation in the judged side's dtype
    moved: float = 0.0  # by how much rounding may move the difference of two of its numbers
    excess: float = 0.0  # how many times its error is what rounding may cost
    at_fault: str = ""  # "A", "B" or "A and B" where the verdict is a fault
    positions: list[float] = field(default_factory=list)  # rms of B - A by position
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # where they differ
    value_a: float = 0.0  # at the worst element
    value_b: float = 0.0

    @property
    def parts(self) -> bool:
        return self.verdict in (FAULT, CARRIED, SHAPE)

    @property
    def place(self) -> str:
        """The worst element, for people."""
        if self.distance is None or self.distance.worst == 0.0:
            return ""
        return ", ".join(f"{axis} {i}" for axis, i in zip(axes(self.point), self.distance.at, strict=True))


class Token(NamedTuple):
    """The first place where the likeliest next tokens differ."""

    row: int
    position: int
    a: int
    b: int
    margin_a: float  # A's logit of its token less that of B's
    margin_b: float  # B's logit of its token less that of A's
    is_tie: bool  # whether rounding explains it


@dataclass
class Comparison:
    """Where two sides part, and whether it matters."""

    a: Side
    b: Side
    batch: Batch
    rows: list[Row]
    truth: str  # where it comes from; empty where there is none
    noise: str  # where the cost of rounding comes from
    judged: str  # "A" or "B": the side that is in doubt
    notes: list[str] = field(default_factory=list)
    token: Token | None = None
    predictions: int = 0  # how many next tokens were compared
    generated: int = 0  # how many of the ids are A's greedy continuation
    arrays: Callable[[str], tuple[np.ndarray, np.ndarray]] | None = None  # a point's arrays of both sides
    first: Row | None = None

    @property
    def agrees(self) -> bool:
        return self.first is None

    @property
    def matters(self) -> bool | None:
        """Whether the last common point parts too; None where nothing parts."""
        return None if self.first is None else self.rows[-1].parts

    def row(self, point: str) -> Row | None:
        return next((row for row in self.rows if row.point == point), None)
