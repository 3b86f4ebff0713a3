"""What explains a point that differs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyxp.doctor.faults import Fault
from tinyxp.doctor.points import sort_points
from tinyxp.doctor.rounding import Error

Faults = tuple[Fault, ...]


@dataclass(frozen=True)
class Finding:
    """The faults that explain one point, and how well; no faults if nothing explains it."""

    point: str
    faults: Faults
    before: Error
    after: Error
    points: tuple[str, ...]  # every point that they explain
    blocks: tuple[int, ...] | None = None  # None: every block, or none in particular
    closest: Faults = ()  # if nothing explains the point
    only: str = ""  # the one kind of point that is wrong, if others of the same operation are right
    alike: Faults = ()  # other faults that explain the same points

    @property
    def closed(self) -> float:
        """The part of the error that is explained, from 0 to 1."""
        before, after = self.before.distance.rms, self.after.distance.rms
        if before == 0.0:
            return 1.0
        return max(0.0, 1.0 - after / before) if np.isfinite(after) else 0.0


def add_finding(findings: tuple[Finding, ...], new: Finding, blocks: int) -> tuple[Finding, ...]:
    """The findings with one more; faults that were found already get its blocks and points."""
    for i, old in enumerate(findings):
        if new.faults and [f.key for f in old.faults] == [f.key for f in new.faults]:
            both = {*(old.blocks or ()), *(new.blocks or range(blocks))}
            merged = replace(
                old,
                blocks=None if len(both) == blocks else tuple(sorted(both)),
                points=tuple(sort_points({*old.points, *new.points})),
            )
            return (*findings[:i], merged, *findings[i + 1 :])
    return (*findings, new)
