"""Findings as causes: what is said of each, and how certain it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyxp.doctor.case import Case
from tinyxp.doctor.diagnosis import Cause, Confidence
from tinyxp.doctor.finding import Finding

MANY = 4
"""From so many parameters on that are not the trusted side's, the side has another model's weights."""
LEAST = 0.1
"""The part of the error that the closest fault must explain to be named."""


def build_causes(
    case: Case, findings: Sequence[Finding], *, agrees_after: bool, is_proved: bool = False
) -> list[Cause]:
    """A cause for each finding; many other weights are one cause.

    ``agrees_after``: the trusted model with all of them agrees with the side. ``is_proved``: so does the side
    itself once what they change is corrected.
    """
    certain = Confidence.PROVED if is_proved else Confidence.CERTAIN
    causes = [_build(case, finding, agrees_after, certain) for finding in findings]
    other = [cause for cause in causes if any(key.startswith("other weights") for key in cause.keys)]
    if len(other) < MANY:
        return causes
    return [_of_other_model(case, other), *(cause for cause in causes if cause not in other)]


def _build(case: Case, finding: Finding, agrees_after: bool, certain: Confidence) -> Cause:
    faults = finding.faults
    sentence = "; ".join(f.says.format(it=case.it, its=f"{case.it}'s") for f in faults)
    if finding.only:
        sentence += f" (at {finding.only} only)"
    return Cause(
        tuple(f.key for f in faults),
        sentence if faults else _unexplained(case, finding),
        "; ".join(dict.fromkeys(f.fix for f in faults)),
        finding.point,
        finding.points,
        certain if _is_certain(case, finding, agrees_after) else _guess(finding),
        finding.blocks,
        finding.before.distance,
        finding.after.distance,
        tuple(f.key for f in finding.alike),
        tuple(f.key for f in finding.closest),
        finding.closed,
    )


def _guess(finding: Finding) -> Confidence:
    return Confidence.LIKELY if finding.faults else Confidence.UNKNOWN


def _is_certain(case: Case, finding: Finding, agrees_after: bool) -> bool:
    if not finding.faults:
        return False
    is_guess = any(f.narrow or f.key.startswith(("other weights", "head not tied")) for f in finding.faults)
    is_nan = not np.isfinite(case.points[finding.point]).any()  # many faults end in NaN
    is_exact = agrees_after or not finding.after.is_fault
    return is_exact and not is_guess and not is_nan


def _unexplained(case: Case, finding: Finding) -> str:
    row = case.comparison.row(finding.point)
    if row is not None and row.shapes is not None:
        theirs, right = row.shapes if case.it == "A" else row.shapes[::-1]
        return f"{finding.point} has shape {theirs}; the right shape is {right}"
    nothing = f"no known fault explains {finding.point}"
    near = " with ".join(f.key for f in finding.closest)
    if near and not finding.after.is_fault:
        return f"{nothing}: {near} would, but then other points differ that agree now"
    if not near or finding.closed < LEAST:
        return nothing
    return f"{nothing}; the closest, {near}, explains {finding.closed:.0%} of the error"


def _of_other_model(case: Case, other: Sequence[Cause]) -> Cause:
    """One cause for many parameters that are not the trusted side's."""
    names = ", ".join(key.partition(": ")[2] for cause in other for key in cause.keys)
    why = "trained further, quantised, or multiplied in fewer digits"
    first = other[0]
    return Cause(
        ("other weights",),
        f"{case.it}'s weights are not this model's ({names}): {why}",
        "compare two sides of the same checkpoint",
        first.point,
        tuple(point for cause in other for point in cause.points),
        Confidence.LIKELY,
        before=first.before,
        after=first.after,
    )
