"""diagnose: the causes of a difference, in order, each with what supports it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinyxp.checks import is_number
from tinyxp.doctor.batches import choose_batch
from tinyxp.doctor.case import Case
from tinyxp.doctor.causes import build_causes
from tinyxp.doctor.comparison import compare_traces
from tinyxp.doctor.diagnosis import Cause, Diagnosis
from tinyxp.doctor.differences import ParameterDifferences, config_differences, parameter_differences
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.proof import Proof, prove
from tinyxp.doctor.search import Explanation, explain
from tinyxp.doctor.side_checks import check_dtype, check_front_token, check_random, check_width
from tinyxp.doctor.specs import as_side


@np.errstate(all="ignore")  # a broken model may overflow: that is reported, not warned of
def diagnose(a: Any, b: Any, ids: Any = None, *, mask: Any = None, seconds: float = 120.0) -> Diagnosis:
    """Compare a and b as ``tinyxp.compare`` does, then find what the side in doubt does wrong.

    Faults that people make are put into the trusted model, alone and then two at a time, until it computes
    what the side in doubt computed. If that side's trace points are known, each operation is judged on the
    side's own inputs, so several faults are found one after another. A cause is proved by correcting only
    the parameters, or the values, at fault in the side's own run, if it can be run again. ``seconds`` limits
    the search.

    Raises the errors of ``compare``, and ValueError if neither side has weights.
    """
    if not (is_number(seconds) and seconds >= 0):
        raise ValueError(f"seconds is {seconds!r}; it must be a finite number of 0 or more")
    a, b = as_side(a, "A"), as_side(b, "B")
    batch = choose_batch(a, b, ids, mask)
    of_a, of_b = a.trace(batch), b.trace(batch)
    comparison = compare_traces(a, b, batch, of_a, of_b)
    base, side, trace = (a, b, of_b) if comparison.judged == "B" else (b, a, of_a)
    if base.weights is None:
        raise ValueError(
            f"neither {a.name} nor {b.name} has weights, but a diagnosis needs a model: name one side's"
        )
    if comparison.agrees:
        return Diagnosis(comparison)
    case = Case(comparison, base, side, base.weights, batch, trace.points, trace.dtype)
    return _examine(case, seconds)


def _examine(case: Case, seconds: float) -> Diagnosis:
    """What concerns the side as a whole; then the search."""
    comparison, notes = case.comparison, config_differences(case.base, case.side, case.it)
    if random := check_random(case):
        return Diagnosis(comparison, (random,), notes=tuple(notes))
    causes: list[Cause] = []
    if front := check_front_token(case):
        cause, case = front
        causes.append(cause)
    if other := check_width(case):
        return Diagnosis(comparison, (*causes, other), notes=tuple(notes))
    if narrow := check_dtype(case):
        cause, case = narrow
        causes.append(cause)

    evidence = Evidence(case.weights, case.batch, case.points, case.dtype)
    reads_checkpoint = case.side.reads_checkpoint
    explanation = explain(evidence, seconds=seconds, reads_checkpoint=reads_checkpoint)
    check = _check(evidence, explanation)
    different = parameter_differences(case.base, case.side)
    notes += [different.describe(case.it)] if different else []
    proof = _prove(case, explanation, different)
    causes += build_causes(case, explanation.findings, agrees_after=check.agrees, is_proved=proof is not None)
    return Diagnosis(
        comparison,
        tuple(causes),
        check.before,
        check.after,
        check.agrees,
        "" if proof is None else proof.describe(case.it, case.other),
        tuple(notes),
        explanation.ran_out,
    )


def _prove(case: Case, explanation: Explanation, different: ParameterDifferences) -> Proof | None:
    """The proof, if every point that differs is explained."""
    findings = explanation.findings
    if not findings or not all(finding.faults for finding in findings):
        return None
    return prove(case, [point for finding in findings for point in finding.points], different)


class _Check(NamedTuple):
    """The error of a run from the ids at the last point, and whether all points agree with all causes."""

    before: Distance | None
    after: Distance | None
    agrees: bool


def _check(evidence: Evidence, explanation: Explanation) -> _Check:
    """Run the trusted model from the ids with all causes, and compare it with the side."""
    before, after = evidence.run_errors(evidence.right), evidence.run_errors(explanation.variant)
    faults = [fault for finding in explanation.findings for fault in finding.faults]
    is_exact = all(fault.change is not None and not fault.narrow for fault in faults)
    agrees = is_exact and bool(after) and not any(error.is_fault for error in after.values())
    last = list(evidence.points)[-1]
    if last in before and last in after:
        return _Check(before[last].distance, after[last].distance, agrees)
    return _Check(None, None, agrees)
