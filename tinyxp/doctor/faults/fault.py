"""A fault: one row of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tinyxp.doctor.faults.change import Change


class Scope(Enum):
    """Where a fault can be."""

    CODE = "in code that all blocks share"
    BLOCK = "in the parameters, maybe those of one block only"
    MODEL = "in the model as a whole"


@dataclass(frozen=True, eq=False)
class Fault:
    """One way to be wrong.

    ``says`` is a sentence about the faulty side, ``{it}`` or ``{its}``; ``fix`` is what to do. ``points`` are
    the kinds of trace points that the fault changes by itself. ``change`` is what it changes in a right
    model; None if the fault was read from the values and is not computed. ``choice`` names the choice that
    it makes wrongly: of two faults with the same choice a model has one.
    """

    key: str
    says: str
    fix: str
    points: tuple[str, ...]
    change: Change | None
    choice: str = ""
    rank: int = 1  # of two faults that explain the same, the lower rank is named
    narrow: str = ""  # the dtype in which it computes; its rounding cannot be imitated exactly
    scope: Scope = Scope.CODE


@dataclass(frozen=True, eq=False)
class NumberFault:
    """One way to be wrong that has a number in it: the row of all its values.

    ``key``, ``says`` and ``fix`` hold ``{value:g}``. The number is fitted from ``low`` to ``high``;
    ``common`` holds the values that are tried anyway, each with its rank. ``right`` is the model's own.
    """

    key: str
    says: str
    fix: str
    points: tuple[str, ...]
    change: Callable[[float], Change]
    choice: str
    right: float
    low: float
    high: float
    common: tuple[tuple[float, int], ...] = ()

    def at(self, value: float, rank: int = 1) -> Fault:
        """The fault with this value."""
        says = self.says.replace("{value:g}", f"{value:g}")
        key = self.key.format(value=value)
        return Fault(key, says, self.fix, self.points, self.change(value), self.choice, rank)

    def faults(self) -> Iterator[Fault]:
        """The faults with the common values, except for the right one."""
        for value, rank in self.common:
            if not math.isclose(value, self.right, rel_tol=1e-3):
                yield self.at(value, rank)


Row = Fault | NumberFault
