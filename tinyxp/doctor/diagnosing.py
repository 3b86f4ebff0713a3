"""diagnose: the causes of a difference, in order, each with what proves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyxp.checks import is_number
from tinyxp.doctor.batches import choose_batch
from tinyxp.doctor.comparison import compare_traces
from tinyxp.doctor.distance import Distance, narrow_dtype
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.healing import Proof, config_differences, heal, parameter_differences
from tinyxp.doctor.search import Finding, Search
from tinyxp.doctor.sides import Side
from tinyxp.doctor.specs import as_side
from tinyxp.doctor.traces import Batch, Points, Trace
from tinyxp.doctor.variant import Variant
from tinyxp.doctor.verdicts import Comparison
from tinyxp.doctor.whole import front_token, with_column

PROVED, CERTAIN, LIKELY, UNKNOWN = "proved", "certain", "likely", "unknown"
MANY = 4
"""From how many parameters on that are not the trusted side's they are called another model's."""
LEAST = 0.1
"""Which part of the gap a fault must close to be named where nothing fits."""


@dataclass
class Cause:
    """One cause, or, where ``keys`` is empty, a point that nothing explains."""

    keys: tuple[str, ...]
    sentence: str
    fix: str
    point: str
    blocks: tuple[int, ...] | None  # None: every block, or none in particular
    points: list[str]  # those that it explains
    before: Distance | None  # None where the side as a whole is concerned
    after: Distance | None
    confidence: str
    alike: tuple[str, ...] = ()  # other causes that would look the same
    closest: tuple[str, ...] = ()  # where nothing fits, what came closest
    closed: float = 0.0  # and which part of the gap that closes


@dataclass
class Diagnosis:
    """Why two sides part."""

    comparison: Comparison
    causes: list[Cause] = field(default_factory=list)
    before: Distance | None = None  # of the side in doubt from the trusted one, at their last common point
    after: Distance | None = None  # the same with all causes put into the trusted side
    agrees_after: bool = False  # whether that is rounding, at every point
    proof: str = ""
    notes: list[str] = field(default_factory=list)
    ran_out: bool = False

    @property
    def explained(self) -> bool:
        return bool(self.causes) and all(cause.keys for cause in self.causes)


@np.errstate(all="ignore")  # a broken model may overflow: that is told, not warned of
def diagnose(a: Any, b: Any, ids: Any = None, *, mask: Any = None, seconds: float = 120.0) -> Diagnosis:
    """Compares as ``tinyxp.compare`` does, then looks for what the side in doubt does wrong.

    The faults that people make are put into the trusted weights' own run, alone and then two at a time, until
    it computes what the side in doubt has. Where that side's trace points are known, every operation is
    judged on the side's own inputs, so that several faults are found one after another. A cause is proved,
    where the side can be run again, by putting right its parameters, or its values, alone. ``seconds`` bounds
    the search. Errors as for ``compare``, and ValueError where neither side has weights to put faults into.
    """
    if not (is_number(seconds) and seconds >= 0):
        raise ValueError(f"seconds is {seconds!r}; it must be a finite number of 0 or more")
    a, b = as_side(a, "A"), as_side(b, "B")
    batch = choose_batch(a, b, ids, mask)
    of_a, of_b = a.trace(batch), b.trace(batch)
    found = compare_traces(a, b, batch, of_a, of_b)
    base, side, trace = (a, b, of_b) if found.judged == "B" else (b, a, of_a)
    if base.weights is None:
        raise ValueError(
            f"neither {a.name} nor {b.name} has weights: causes are tried on a model; name one side's"
        )
    answer = Diagnosis(found)
    if found.agrees:
        return answer
    _Examination(answer, base, side, trace, batch, seconds).run()
    return answer


class _Examination:
    """One search, its steps in order."""

    def __init__(
        self, answer: Diagnosis, base: Side, side: Side, trace: Trace, batch: Batch, seconds: float
    ) -> None:
        assert base.weights is not None
        self.answer, self.base, self.side, self.batch = answer, base, side, batch
        self.trace: Points = trace.points
        self.weights, self.seconds = base.weights, seconds
        self.it = answer.comparison.judged
        self.dtype = trace.dtype

    def run(self) -> None:
        self._differences()
        if self._is_random():
            return
        self._front_token()
        if self._is_of_other_width():
            return
        self._dtype()
        search = Search(
            self.weights, self.batch, self.trace, self.dtype, seconds=self.seconds,
            in_file=self.side.reads_checkpoint,
        )  # fmt: skip
        findings, v = search.explain()
        self.answer.ran_out = search.ran_out
        self._confirm(search, findings, v)
        causes = [self._cause(finding) for finding in findings]
        other = [cause for cause in causes if any(key.startswith("other weights") for key in cause.keys)]
        if len(other) >= MANY:
            causes = [self._other_model(other), *(cause for cause in causes if cause not in other)]
        self.answer.causes += causes
        self._prove(findings)

    def _other_model(self, other: list[Cause]) -> Cause:
        """One cause for many parameters that are not the trusted side's."""
        names = ", ".join(key.partition(": ")[2] for cause in other for key in cause.keys)
        why = "trained further, quantised, or multiplied in fewer digits"
        says = f"{self.it}'s weights are not this model's ({names}): {why}"
        points = [point for cause in other for point in cause.points]
        first = other[0]
        fix = "compare two sides of the same checkpoint"
        return Cause(
            ("other weights",), says, fix, first.point, None, points, first.before, first.after, LIKELY
        )

    def _differences(self) -> None:
        """What the two configs say differently: the shortest way to many causes."""
        if self.base.config is not None and self.side.config is not None:
            self.answer.notes += config_differences(self.base.config, self.side.config, self.it)

    def _is_random(self) -> bool:
        """Whether the side answers differently when it is asked again."""
        if not self.side.can_rerun or list(self.trace) != ["logits"]:
            return False  # where points are known, dropout shows at one
        x, again = self.trace["logits"], self.side.trace(self.batch).points.get("logits")
        if again is not None and again.shape == x.shape:
            apart = np.abs(x.astype(np.float64) - again)
            if not np.nanmax(apart, initial=0.0) > 1e-4 * np.nanmax(np.abs(x), initial=0.0):
                return False
        says = f"{self.it} answers differently each time it is asked the same: dropout is left on"
        self._whole("dropout", says, "switch to evaluation: model.eval() in torch", "logits", LIKELY)
        return True

    def _front_token(self) -> None:
        token = front_token(self.weights, self.batch, self.trace)
        if token is None:
            return
        self.batch, self.trace = with_column(self.batch, self.trace, token)
        says = f"{self.it} puts token {token} in front of the ids (a BOS?): it has one column more"
        fix = "put a BOS in front once, or not at all, on both sides"
        first = next(iter(self.trace))
        self._whole(f"extra token {token} in front", says, fix, first, LIKELY)

    def _is_of_other_width(self) -> bool:
        """Whether the side's stream has another width: then no fault makes one model of the other."""
        width = self.weights.config.d_model
        stream = [n for n in self.trace if n == "embed" or n.endswith("residual")]
        other = [n for n in stream if self.trace[n].shape[2] != width]
        if other:
            found = self.trace[other[0]].shape[2]
            says = f"{self.it} is another model: its stream has width {found}, this model's {width}"
            self._whole("another model", says, "compare two sides of one model", other[0], CERTAIN)
        return bool(other)

    def _dtype(self) -> None:
        narrow = narrow_dtype(self.trace, self.dtype)
        if narrow is None:
            return
        first = self.answer.comparison.first
        assert first is not None
        says = (
            f"{self.it} computes in {narrow}, though its results are {self.dtype}: "
            f"nearly all of its values are {narrow} numbers"
        )
        fix = f"compute in {self.dtype}; or, to compare it as {narrow}, {self.side.suggest_dtype(narrow)}"
        self._whole(f"computes in {narrow}", says, fix, first.point, LIKELY)
        self.dtype = narrow

    def _whole(self, key: str, says: str, fix: str, point: str, confidence: str) -> None:
        """A cause that concerns the side as a whole."""
        found = Cause((key,), says, fix, point, None, list(self.trace), None, None, confidence)
        self.answer.causes.append(found)

    def _confirm(self, search: Search, findings: list[Finding], v: Variant) -> None:
        """The trusted run from the ids on, with all causes put in, against the side."""
        last = list(self.trace)[-1]

        before, after = search.whole(search.right), search.whole(v)
        if last in before and last in after:
            self.answer.before, self.answer.after = before[last].distance, after[last].distance
        coarse = any(
            f.coarse or f.plant(search.right) is search.right for finding in findings for f in finding.faults
        )
        self.answer.agrees_after = bool(after) and all(e.excess <= 1.0 for e in after.values()) and not coarse

    def _cause(self, finding: Finding) -> Cause:
        faults = finding.faults
        confidence = UNKNOWN
        if faults:
            given = any(f.coarse or f.key.startswith(("other weights", "head not tied")) for f in faults)
            given |= not np.isfinite(self.trace[finding.point]).any()  # many faults end in NaN alone
            confidence = (
                LIKELY if given or not (self.answer.agrees_after or finding.after.excess <= 1.0) else CERTAIN
            )
        return Cause(
            tuple(f.key for f in faults),
            self._said(finding) if faults else self._nothing(finding),
            "; ".join(dict.fromkeys(f.fix for f in faults)),
            finding.point,
            finding.blocks,
            finding.points,
            finding.before.distance,
            finding.after.distance,
            confidence,
            tuple(f.key for f in finding.alike),
            tuple(f.key for f in finding.closest),
            finding.closed,
        )

    def _said(self, finding: Finding) -> str:
        words = "; ".join(self._words(fault) for fault in finding.faults)
        return f"{words} (at {finding.only} only)" if finding.only else words

    def _words(self, fault: Fault) -> str:
        return fault.says.format(it=self.it, its=f"{self.it}'s")

    def _nothing(self, finding: Finding) -> str:
        row = self.answer.comparison.row(finding.point)
        if row is not None and row.shapes is not None:
            mine, right = row.shapes if self.it == "A" else row.shapes[::-1]
            return f"{finding.point} has shape {mine} where {right} is right"
        where = f"nothing that is known here explains {finding.point}"
        if finding.closest and finding.after.excess <= 1.0:
            near = " with ".join(f.key for f in finding.closest)
            return f"{where}: {near} would, but spoils what agrees now"
        if not finding.closest or finding.closed < LEAST:
            return where
        near = " with ".join(f.key for f in finding.closest)
        return f"{where}; the closest, {near}, closes {finding.closed:.0%} of the gap"

    def _prove(self, findings: list[Finding]) -> None:
        """The side's own run, put right where the causes are."""
        answer = self.answer
        different = parameter_differences(self.base, self.side)
        if different:
            answer.notes.append(different.words(self.it))
        if not answer.causes or any(not cause.keys for cause in answer.causes):
            return
        points = [point for finding in findings for point in finding.points]
        proof: Proof | None = heal(self.base, self.side, self.batch, points, different, self.dtype)
        if proof is not None:
            answer.proof = proof.words(self.it, "A" if self.it == "B" else "B")
            for cause in answer.causes:
                if cause.confidence == CERTAIN:
                    cause.confidence = PROVED
