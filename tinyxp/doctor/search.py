"""The search for the faults that make the trusted model compute what the side in doubt computed.

If the side's values are known, each operation is judged on the side's own inputs, so faults are found one
after another, in any operation. If only its logits are known, the whole model runs with each fault.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinyxp.doctor.attempts import answer
from tinyxp.doctor.budget import Budget
from tinyxp.doctor.evidence import INCOMPARABLE, Evidence
from tinyxp.doctor.faults import list_faults
from tinyxp.doctor.finding import Finding, add_finding
from tinyxp.doctor.points import kind, sort_points
from tinyxp.doctor.question import Question
from tinyxp.doctor.variant import Variant

MOST = 6
"""How many points are explained, one after another."""
OF_PADDING = ("padding not masked", "padding mask inverted", "positions not counted from the mask")


class Explanation(NamedTuple):
    """What explains the points that differ, in order; the model with all of it; whether time ran out."""

    findings: tuple[Finding, ...]
    variant: Variant
    ran_out: bool


def explain(evidence: Evidence, *, seconds: float, reads_checkpoint: bool = False) -> Explanation:
    """Explain each point that differs by itself, in the order of the computation."""
    budget, v = Budget(seconds), evidence.right
    has_padding = evidence.batch.mask is not None
    catalogue = list_faults(evidence.weights.config)
    faults = tuple(fault for fault in catalogue if has_padding or fault.key not in OF_PADDING)
    findings: tuple[Finding, ...] = ()
    named, settled = frozenset[str](), set[str]()
    for _ in range(MOST):
        own = evidence.all_errors(v)
        bad = [name for name in sort_points(own) if own[name].is_fault and name not in settled]
        if not bad:
            break
        finding, v = answer(Question(evidence, budget, v, bad[0], own, faults, named, reads_checkpoint))
        findings = add_finding(findings, finding, evidence.blocks)
        named |= {fault.key for fault in finding.faults}
        settled |= set(finding.points)
        if not finding.faults:
            settled |= {n for n in bad if kind(n) == kind(bad[0]) or own[n] is INCOMPARABLE}
        if not np.isfinite(evidence.points[bad[0]]).all():  # what follows has no right answer
            settled |= {n for n in bad if not np.isfinite(evidence.points[n]).all()}
    return Explanation(findings, v, budget.ran_out)
