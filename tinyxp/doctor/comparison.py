"""compare: the same ids through two sides, every trace point judged against the reference run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from tinyxp.checks import as_integer
from tinyxp.doctor.batches import choose_batch, continue_greedily
from tinyxp.doctor.distance import excess, measure, relative_excess, rms_by_position
from tinyxp.doctor.notes import find_notes, list_some
from tinyxp.doctor.points import axes, points_of, sort_points
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.rounding import Error, describe_noise, measure_errors, measure_own_errors
from tinyxp.doctor.sides import Side
from tinyxp.doctor.specs import as_side
from tinyxp.doctor.tokens import compare_tokens
from tinyxp.doctor.traces import Batch, Trace, compared_mask
from tinyxp.doctor.verdicts import AtFault, Comparison, Row, Verdict
from tinyxp.dtypes import EPSILON


@np.errstate(all="ignore")  # a faulty model may overflow: that is reported, not warned about
def compare(a: Any, b: Any, ids: Any = None, *, mask: Any = None, generate: int = 0) -> Comparison:
    """Run the same ids through both sides and judge every trace point that both have.

    ``a`` (trusted) and ``b`` are each a specification such as "MODEL@jax:float32", "hf:MODEL", "trace.npz" or
    "package.module:function" (see ``tinyxp.doctor.parse``), or Params, or a function from ids (b, t) to
    logits (b, t, n) or to a mapping trace point -> array. ``ids`` (b, t) default to those of a recorded
    trace, else to 32 drawn ones. ``mask`` (b, t) is True on real tokens. ``generate`` first appends that many
    greedy tokens of A.

    Errors are measured against a float64 run of the trusted side's weights (of the other side's if only that
    has any). An error that a correct implementation in the side's dtype also has is noise; a larger one is a
    fault. If neither side has weights, the two are compared with each other under stated tolerances.
    Raise ValueError if a side cannot be read or run, or if the sides have no trace point in common.
    """
    a, b = as_side(a, "A"), as_side(b, "B")
    batch = choose_batch(a, b, ids, mask)
    generate = as_integer("generate", generate, low=0)
    if generate:
        if not b.can_rerun:
            raise ValueError(f"generate is {generate}; {b.name} is a recorded trace of fixed ids")
        batch = continue_greedily(a, batch, generate)
    return compare_traces(a, b, batch, a.trace(batch), b.trace(batch), generated=generate)


def compare_traces(
    a: Side, b: Side, batch: Batch, trace_a: Trace, trace_b: Trace, *, generated: int = 0
) -> Comparison:
    """Compare the traces that two sides gave for one batch; A generated the last ``generated`` ids."""
    names = sort_points(trace_a.points.keys() & trace_b.points.keys())
    if not names:
        points = f"{list_some(trace_a.points)} and {list_some(trace_b.points)}"
        raise ValueError(f"{a.name} and {b.name} have no trace point in common: {points}")
    base, judged = (b, AtFault.A) if a.weights is None and b.weights is not None else (a, AtFault.B)
    weights, traces = base.weights, (trace_a, trace_b)
    in_doubt = AtFault.EITHER if weights is None else judged
    rows = [_unjudged(name, traces, batch, in_doubt) for name in names]
    own: frozenset[str] = frozenset()
    if weights is None:
        dtype = max((trace.dtype for trace in traces), key=EPSILON.__getitem__)
        rows = [_judge_by_tolerance(row, dtype) for row in rows]
        noise = "stated tolerances: neither side has weights, so there is no reference run"
    else:
        rows = _judge_by_reference(rows, weights, traces, batch, judged)
        noise = "; ".join(describe_noise(dtype) for dtype in dict.fromkeys(t.dtype for t in traces))
        own = _wrong_operations(rows, weights, traces, batch)
    rows, first = _find_first(rows, own)
    token, predictions = None, 0
    if rows[-1].point == "logits" and rows[-1].verdict != Verdict.SHAPE:
        logits_a, logits_b = (trace.points["logits"] for trace in traces)
        token, predictions = compare_tokens(rows[-1], logits_a, logits_b, batch)
    return Comparison(
        a=a,
        b=b,
        batch=batch,
        trace_a=trace_a,
        trace_b=trace_b,
        rows=tuple(rows),
        first=first,
        judged=judged.value,
        reference="" if weights is None else f"the float64 run of the weights of {base.name}",
        noise=noise,
        notes=tuple(find_notes(rows, first, ((a, trace_a), (b, trace_b)))),
        token=token,
        predictions=predictions,
        generated=generated,
    )


def _unjudged(name: str, traces: Sequence[Trace], batch: Batch, in_doubt: AtFault) -> Row:
    """Return a row with the distance of B from A, or with their shapes if these differ."""
    x, y = (trace.points[name] for trace in traces)
    t = batch.ids.shape[1]
    columns = {n for axis, n in zip(axes(name), x.shape, strict=True) if axis in ("position", "key")}
    if x.shape != y.shape or columns != {t}:
        return _shape_row(Row(point=name, shape=x.shape, verdict=Verdict.SHAPE), (x.shape, y.shape), in_doubt)
    compared = compared_mask(name, x.shape, batch)
    distance = measure(y, x, compared)
    return Row(
        point=name,
        shape=x.shape,
        verdict=Verdict.EXACT if distance.worst == 0.0 else Verdict.NOISE,
        distance=distance,
        positions=rms_by_position(y, x, compared, axes(name).index("position")),
        value_a=float(x[distance.at]),
        value_b=float(y[distance.at]),
    )


def _shape_row(row: Row, shapes: tuple[tuple[int, ...], tuple[int, ...]], at_fault: AtFault) -> Row:
    return replace(row, verdict=Verdict.SHAPE, shapes=shapes, excess=inf, at_fault=at_fault)


def _judge_by_tolerance(row: Row, dtype: str) -> Row:
    if row.distance is None:
        return row
    times = relative_excess(row.distance, dtype)
    if times > 1.0:
        return replace(row, excess=times, verdict=Verdict.FAULT, at_fault=AtFault.EITHER)
    return replace(row, excess=times)


def _judge_by_reference(
    rows: Iterable[Row], weights: WeightSource, traces: Sequence[Trace], batch: Batch, judged: AtFault
) -> list[Row]:
    """Judge every row that has a distance against one float64 run."""
    rows = list(rows)
    names = [row.point for row in rows if row.distance is not None]
    common = [Trace({name: trace.points[name] for name in names}, trace.dtype) for trace in traces]
    shapes, (errors_a, errors_b) = measure_errors(weights, batch, common)
    if unknown := [name for name in names if name not in shapes]:
        known = list_some(points_of(weights.config))
        raise ValueError(f"trace point {unknown[0]} is not a point of this model: {known}")
    dtypes = (traces[0].dtype, traces[1].dtype)
    judged_rows = []
    for row in rows:
        if row.distance is None:
            judged_rows.append(row)
        elif row.point in errors_a:
            judged_rows.append(judge_errors(row, (errors_a[row.point], errors_b[row.point]), dtypes, judged))
        else:
            judged_rows.append(_shape_row(row, (shapes[row.point], row.shape), judged))
    return judged_rows


def judge_errors(row: Row, errors: tuple[Error, Error], dtypes: tuple[str, str], judged: AtFault) -> Row:
    """Return the row with its verdict: which side, if any, has a larger error than rounding explains."""
    assert row.distance is not None
    a, b = errors
    doubtful = a if judged is AtFault.A else b
    wrong = {side: error for side, error in ((AtFault.A, a), (AtFault.B, b)) if error.is_fault}
    coarse = max((0, 1), key=lambda i: EPSILON[dtypes[i]])
    if len(wrong) == 2 and excess(row.distance, errors[coarse].noise, dtypes[coarse]) <= 1.0:
        wrong = {}  # both have the same error: the question is whether they agree
    at_fault = AtFault.BOTH if len(wrong) == 2 else next(iter(wrong), AtFault.NONE)
    return replace(
        row,
        verdict=Verdict.FAULT if at_fault else row.verdict,
        at_fault=at_fault,
        excess=max((error.excess for error in wrong.values()), default=doubtful.excess),
        error_a=a.distance,
        error_b=b.distance,
        noise=doubtful.noise,
        moved=4.0 * max(a.noise.worst, b.noise.worst),
    )


def _wrong_operations(
    rows: Sequence[Row], weights: WeightSource, traces: Sequence[Trace], batch: Batch
) -> frozenset[str]:
    """Return the points whose operation is wrong on a faulty side's own inputs; none if a shape differs."""
    differing = [row for row in rows if row.differs]
    if any(row.verdict == Verdict.SHAPE for row in differing):
        return frozenset()
    sides = {side for row in differing for side in row.at_fault.sides}
    errors = [
        measure_own_errors(weights, batch, trace)
        for side, trace in zip("AB", traces, strict=True)
        if side in sides
    ]
    return frozenset(point for own in errors for point, error in own.items() if error.is_fault)


def _find_first(rows: Sequence[Row], own: frozenset[str]) -> tuple[list[Row], Row | None]:
    """Return the rows, those wrong only because of their inputs as CARRIED, and the first that differs.

    A point of ``own`` before the first large error is the first: its operation adds more than rounding.
    """
    start = next((i for i, row in enumerate(rows) if row.differs), None)
    if start is None:
        return list(rows), None
    at = next((i for i, row in enumerate(rows[: start + 1]) if row.point in own), start)
    marked = []
    for i, row in enumerate(rows):
        verdict, at_fault = row.verdict, row.at_fault
        if i == at:
            verdict = Verdict.FAULT if verdict != Verdict.SHAPE else verdict
            at_fault = at_fault or rows[start].at_fault
        elif verdict == Verdict.FAULT and row.point not in own:
            verdict = Verdict.CARRIED
        marked.append(replace(row, verdict=verdict, at_fault=at_fault))
    return marked, marked[at]
