"""One point to explain: which faults can explain it, and whether a fault does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tinyxp.doctor.budget import Budget
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.evidence import Errors, Evidence, Segment
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.finding import Faults
from tinyxp.doctor.points import BLOCK_POINTS, block_of, kind, point_order
from tinyxp.doctor.traces import compared_mask
from tinyxp.doctor.variant import Variant

WITH_SIBLING = ("attn.k", "attn.v", "attn.k_rotated", "mlp.up")
"""Kinds of points whose operation is not that of the point before them."""


@dataclass(frozen=True)
class Question:
    """Why does the side differ from ``v`` at ``point``, given the errors of ``v`` at every point?"""

    evidence: Evidence
    budget: Budget
    v: Variant
    point: str
    own: Errors
    faults: tuple[Fault, ...]  # of the catalogue
    named: frozenset[str]  # keys of the faults that were found at other points
    reads_checkpoint: bool  # whether the side's code is known to be right

    @property
    def segment(self) -> Segment:
        """The steps that compute the point."""
        return self.evidence.segment_of(self.point)

    @property
    def here(self) -> Errors:
        """The errors at the points of the segment."""
        segment = self.segment
        return {n: error for n, error in self.own.items() if self.evidence.computes(segment, n)}

    def try_faults(self, *faults: Fault) -> Errors:
        """The errors that these faults leave in the segment."""
        return self.evidence.errors(self.v.with_faults(*faults), self.segment)

    def candidates(self) -> list[Fault]:
        """The faults that can show first at the point, given which points are known before it."""
        evidence, segment = self.evidence, self.segment
        if not segment.is_one_step:
            config, t = evidence.weights.config, evidence.batch.ids.shape[1]
            has_room = config.position == "rope" or t < config.max_seq_len
            takes_ids = segment == evidence.whole and has_room
            return [fault for fault in self.faults if takes_ids or fault.choice != "ids"]
        kinds = self._kinds()
        return [f for f in self.faults if kinds & set(f.points) and f.choice != "ids"]

    def _kinds(self) -> set[str]:
        """The kinds of points from the last known one before the point up to it."""
        trace, i = self.evidence.points, block_of(self.point)
        if i is None:
            return {self.point} if "final_norm" in trace else {"final_norm", "logits"}
        known = [
            name for name in trace if block_of(name) == i and point_order(name) < point_order(self.point)
        ]
        start = max((BLOCK_POINTS.index(kind(name)) for name in known), default=-1)
        kinds = {*BLOCK_POINTS[start + 1 : BLOCK_POINTS.index(kind(self.point)) + 1]}
        return kinds | ({kind(self.point)} if kind(self.point) in WITH_SIBLING else set())

    def is_solved_by(self, faults: Faults, after: Errors) -> bool:
        """Whether the faults explain the point, and no point differs that did not before."""
        before = self.here
        if self.point not in after:
            return False
        if any(after[n].is_fault and not before.get(n, after[n]).is_fault for n in after):
            return False
        if not after[self.point].is_fault:
            return True
        return len(faults) == 1 and bool(faults[0].narrow) and self._resembles(faults[0])

    def _resembles(self, fault: Fault) -> bool:
        """Whether the side's error is like that of computing in few digits: of its size and shape."""
        evidence, point = self.evidence, self.point
        right, narrow = (evidence.value(v, point) for v in (self.v, self.v.with_faults(fault)))
        values = evidence.points[point].astype(np.float64)
        if values.shape != right.shape:
            return False
        counts = np.broadcast_to(compared_mask(point, values.shape, evidence.batch), values.shape)
        counts = counts & np.isfinite(values)
        if not counts.any():
            return False
        theirs, expected = (values - right)[counts], (narrow - right)[counts]
        a, b = float(np.sqrt(np.mean(theirs**2))), float(np.sqrt(np.mean(expected**2)))
        if not (b > 0.0 and 0.3 < a / b < 3.0):
            return False
        correlation = float(np.mean(theirs * expected)) / (a * b)
        return correlation > 0.5 or np.array_equal(round_to(values[counts], fault.narrow), values[counts])


def rms_at(point: str, errors: Errors) -> float:
    """The error at a point; infinite if there is none."""
    error = errors.get(point)
    return np.inf if error is None or np.isnan(error.distance.rms) else error.distance.rms


def without_narrow(faults: Iterable[Fault]) -> list[Fault]:
    """The faults that can be computed exactly."""
    return [fault for fault in faults if not fault.narrow]
