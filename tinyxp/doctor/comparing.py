"""compare: the same ids through both sides, each trace point held against the truth."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

import numpy as np

from tinyxp.checks import as_integer
from tinyxp.doctor import truth
from tinyxp.doctor.distance import Distance, by_position, excess, measure, relative_excess
from tinyxp.doctor.notes import notes, some
from tinyxp.doctor.points import Batch, axes, counted, ordered, points_of
from tinyxp.doctor.sides import Side, Trace, as_side
from tinyxp.doctor.tokens import continued, first_token
from tinyxp.doctor.truth import Weights
from tinyxp.doctor.verdicts import CARRIED, EXACT, FAULT, NOISE, SHAPE, Comparison, Row
from tinyxp.dtypes import EPSILON
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask

DRAWN = 32
"""How many ids are drawn where none are given."""
WINDOW = 16
"""How many points tell what is usual: about a block."""


@np.errstate(all="ignore")  # a broken model may overflow: that is told, not warned of
def compare(a: Any, b: Any, ids: Any = None, *, mask: Any = None, generate: int = 0) -> Comparison:
    """Runs the same ids through both sides and judges every trace point that both have.

    ``a`` (trusted) and ``b`` are each a specification such as "MODEL@jax:float32", "hf:MODEL", "trace.npz" or
    "package.module:function" (``tinyxp.doctor.parse``), or Params, or a function from ids (b, t) to
    logits (b, t, n) or to a mapping trace point -> array. ``ids`` (b, t) default to those of a recorded
    trace, else to 32 that are drawn; ``mask`` (b, t) is True on real tokens. ``generate`` appends that many
    greedy tokens of A first.

    The truth is the float64 forward of the trusted side's weights (of the other's where only that has any),
    and what a dtype costs here is the error of a right implementation in it: errors of that size are noise,
    larger ones a fault. Without weights on either side, the two are held against each other with stated
    tolerances. ValueError for sides that cannot be read or run, or that have no trace point in common.
    """
    a, b = as_side(a, "A"), as_side(b, "B")
    batch = batch_for(a, b, ids, mask)
    generate = as_integer("generate", generate, low=0)
    if generate:
        if b.batch is not None:
            raise ValueError(f"generate is {generate}; {b.name} is a recorded trace, whose ids have an end")
        batch = continued(a, batch, generate)
    return judged(a, b, batch, a.trace(batch), b.trace(batch), generate)


def batch_for(a: Side, b: Side, ids: Any, mask: Any) -> Batch:
    """What goes into both: the ids given, those of a recorded trace, or drawn ones."""
    recorded = [side for side in (a, b) if side.batch is not None]
    if ids is not None:
        batch = Batch(as_host_integers(ids, Bounds("ids", 2**31, "the limit")))
    elif recorded:
        assert recorded[0].batch is not None
        batch = recorded[0].batch
    elif mask is not None:
        raise ValueError("mask is given, and ids are not: pass ids")
    else:
        batch = Batch(drawn_ids(a, b))
    if mask is not None:
        batch = Batch(batch.ids, as_host_mask(mask, batch.ids.shape))
    for side in recorded:
        assert side.batch is not None
        if not np.array_equal(side.batch.ids, batch.ids):
            raise ValueError(
                f"{side.name} was recorded for ids {_short(side.batch.ids)}; "
                f"the other side gets {_short(batch.ids)}"
            )
        if not np.array_equal(side.batch.real, batch.real):
            raise ValueError(f"{side.name} was recorded for another mask than the other side gets")
    for side in (a, b):
        if side.config is not None:
            limit = side.config.vocab_size
            as_host_integers(batch.ids, Bounds("ids", limit, f"the vocabulary size of {side.name},"))
    if not batch.real.any():
        raise ValueError("mask has no real token: there is nothing to compare")
    return batch


def _short(ids: np.ndarray) -> str:
    """The first ids of a batch, for a message."""
    flat = ids.ravel().tolist()
    return f"{flat[:8]}{'...' if len(flat) > 8 else ''} of shape {ids.shape}"


def drawn_ids(a: Side, b: Side) -> np.ndarray:
    """(1, up to 32) ids that both sides know, always the same."""
    configs = [side.config for side in (a, b) if side.config is not None]
    if not configs:
        raise ValueError("ids are not given, and neither side tells its vocabulary: pass ids")
    learned = [c.max_seq_len for c in configs if c.position == "learned"]
    return np.random.default_rng(0).integers(
        min(c.vocab_size for c in configs), size=(1, min([DRAWN, *learned]))
    )


def judged(a: Side, b: Side, batch: Batch, of_a: Trace, of_b: Trace, generated: int = 0) -> Comparison:
    """The comparison of two traces of the same ids."""
    names = ordered(of_a.keys() & of_b.keys())
    if not names:
        raise ValueError(
            f"{a.name} and {b.name} have no trace point in common: {some(of_a)} and {some(of_b)}"
        )
    base, judged_side = (b, "A") if a.weights is None and b.weights is not None else (a, "B")
    weights = base.weights
    found = Comparison(a, b, batch, [], "", "", judged_side)
    found.arrays = lambda point: (of_a[point], of_b[point])
    in_doubt = judged_side if weights is not None else "A or B"
    rows = {name: _bare(name, of_a[name], of_b[name], batch, in_doubt) for name in names}
    if weights is None:
        found.noise = "stated tolerances: neither side has weights here, so there is no referee"
        _judge_alone(rows, a, b)
    else:
        found.truth = f"the float64 run of the weights of {base.name}"
        _judge(found, weights, rows, of_a, of_b)
    found.rows = list(rows.values())
    found.first = _first(found, weights, of_a, of_b)
    found.notes = notes(found, of_a, of_b)
    if "logits" in rows and rows["logits"].verdict != SHAPE:
        found.token, found.predictions = first_token(rows["logits"], of_a["logits"], of_b["logits"], batch)
        found.generated = generated
    return found


def _bare(name: str, x: np.ndarray, y: np.ndarray, batch: Batch, in_doubt: str) -> Row:
    """A row with the distance of B from A, not judged yet."""
    t = batch.ids.shape[1]
    columns = {n for axis, n in zip(axes(name), x.shape, strict=True) if axis in ("position", "key")}
    if x.shape != y.shape or columns != {t}:
        return Row(name, x.shape, SHAPE, shapes=(x.shape, y.shape), excess=float("inf"), at_fault=in_doubt)
    counts = counted(name, x.shape, batch)
    distance = measure(y, x, counts)
    return Row(
        name,
        x.shape,
        EXACT if distance.worst == 0.0 else NOISE,
        distance,
        positions=by_position(y, x, counts, axes(name).index("position")),
        value_a=float(x[distance.at]),
        value_b=float(y[distance.at]),
    )


def _judge_alone(rows: dict[str, Row], a: Side, b: Side) -> None:
    """The verdicts where no truth can be had."""
    dtype = _wider_epsilon(a.dtype, b.dtype)
    for row in rows.values():
        if row.distance is not None:
            row.excess = relative_excess(row.distance, dtype)
            if row.excess > 1.0:
                row.verdict, row.at_fault = FAULT, "A or B"


def _wider_epsilon(*dtypes: str | None) -> str:
    return max((dtype or "float32" for dtype in dtypes), key=EPSILON.__getitem__)


def _judge(found: Comparison, weights: Weights, rows: dict[str, Row], of_a: Trace, of_b: Trace) -> None:
    """The verdicts against the truth, in one pass of it."""
    batch, dtypes = found.batch, {"A": found.a.dtype or "float32", "B": found.b.dtype or "float32"}
    noises = {dtype: Noise(weights, batch, dtype, rows) for dtype in dict.fromkeys(dtypes.values())}
    found.noise = "; ".join(noise.source for noise in noises.values())
    traces = {"A": of_a, "B": of_b}
    unmatched = dict.fromkeys(rows)

    def tap(name: str, truth: np.ndarray) -> np.ndarray:
        row = rows.get(name)
        if row is None or row.verdict == SHAPE:
            return truth
        unmatched.pop(name, None)
        if truth.shape != row.shape:
            row.verdict, row.shapes, row.excess = SHAPE, (truth.shape, row.shape), float("inf")
            row.at_fault = found.judged
            return truth
        counts = counted(name, truth.shape, batch)
        errors = {side: measure(traces[side][name], truth, counts) for side in traces}
        costs = {side: noises[dtypes[side]].at(name, truth, counts) for side in traces}
        _decide(row, found.judged, errors, costs, dtypes)
        return truth

    truth.run(weights, batch, tap)
    for name in unmatched:
        if rows[name].verdict != SHAPE:
            raise ValueError(f"trace point {name} is none of this model: {some(points_of(weights.config))}")


class Noise:
    """What a right implementation in one dtype is off the truth, point by point."""

    def __init__(
        self, weights: Weights, batch: Batch, dtype: str, names: Any, forced: Trace | None = None
    ) -> None:
        # float64 cannot be measured against itself; first-order errors are in the ratio of the epsilons.
        self.run_in = "float32" if dtype == "float64" else dtype
        self.factor = EPSILON[dtype] / EPSILON[self.run_in]
        self.points: Trace = {}

        def tap(name: str, x: np.ndarray) -> np.ndarray:
            if name in names:
                self.points[name] = x
            return x if forced is None or not _fits(forced, name, x) else forced[name]

        self.usual: deque[float] = deque(maxlen=WINDOW)  # of the last points, relative to their scale
        truth.run(weights, batch, tap, dtype=self.run_in)
        library = truth.library_with(self.run_in).name
        scaled = "" if dtype == self.run_in else f", {self.run_in}'s scaled"
        self.source = f"what {dtype} costs a right implementation here ({library}{scaled})"

    def at(self, name: str, truth: np.ndarray, counts: np.ndarray) -> Distance:
        """At a point, asked for in order; at least what was usual at the points before, since where one
        large number decides, its rounding may happen to be small."""
        found = measure(self.points[name], truth, counts).scaled(self.factor)
        if found.scale > 0.0:
            self.usual.append(found.rms / found.scale)
        usual = median(self.usual) if self.usual else 0.0
        return found._replace(
            rms=max(found.rms, usual * found.scale), worst=max(found.worst, usual * found.largest)
        )


def _decide(
    row: Row,
    judged_side: str,
    errors: dict[str, Distance],
    costs: dict[str, Distance],
    dtypes: dict[str, str],
) -> None:
    """Which side, if any, is farther from the truth than rounding takes it."""
    row.error_a, row.error_b = errors["A"], errors["B"]
    assert row.distance is not None
    times = {side: excess(errors[side], costs[side], dtypes[side]) for side in errors}
    wrong = [side for side in times if times[side] > 1.0]
    coarse = max(dtypes, key=lambda side: EPSILON[dtypes[side]])
    if len(wrong) == 2 and excess(row.distance, costs[coarse], dtypes[coarse]) <= 1.0:
        wrong = []  # both are off the truth alike: the question is whether they agree
    row.noise = costs[judged_side]
    row.moved = 4.0 * max(cost.worst for cost in costs.values())
    row.excess = max((times[side] for side in wrong), default=times[judged_side])
    row.at_fault = " and ".join(wrong)
    row.verdict = FAULT if wrong else EXACT if row.distance.worst == 0.0 else NOISE


def _first(found: Comparison, weights: Weights | None, of_a: Trace, of_b: Trace) -> Row | None:
    """The first point that parts; those that are wrong only because their inputs are become CARRIED."""
    parting = [row for row in found.rows if row.parts]
    if not parting:
        return None
    if weights is None or any(row.verdict == SHAPE for row in parting):
        for row in parting[1:]:
            row.verdict = CARRIED if row.verdict == FAULT else row.verdict
        return parting[0]
    sides = {letter for row in parting for letter in row.at_fault.split() if letter in ("A", "B")}
    own: dict[str, float] = {}
    for letter, side, trace in (("A", found.a, of_a), ("B", found.b, of_b)):
        if letter in sides:
            for point, excess_ in own_excess(weights, found.batch, trace, side.dtype).items():
                own[point] = max(own.get(point, 0.0), excess_)
    until = found.rows.index(parting[0])
    earlier = [row for row in found.rows[: until + 1] if own.get(row.point, 0.0) > 1.0]
    first = earlier[0] if earlier else parting[0]
    for row in parting:
        if row is not first and own.get(row.point, 0.0) <= 1.0:
            row.verdict = CARRIED
    first.verdict, first.at_fault = FAULT, first.at_fault or parting[0].at_fault
    return first


def _fits(trace: Trace, name: str, x: np.ndarray) -> bool:
    return name in trace and trace[name].shape == x.shape


def own_excess(weights: Weights, batch: Batch, trace: Trace, dtype: str | None) -> dict[str, float]:
    """Each point's own share: how many times the error of its operation, on the side's own inputs, exceeds
    what rounding costs there. A point whose inputs the side does not have inherits theirs."""
    noise = Noise(weights, batch, dtype or "float32", trace, forced=trace)
    own: dict[str, float] = {}

    def tap(name: str, right: np.ndarray) -> np.ndarray:
        if not _fits(trace, name, right):
            return right
        counts = counted(name, right.shape, batch)
        error = measure(trace[name], right, counts)
        own[name] = excess(error, noise.at(name, right, counts), dtype or "float32")
        return trace[name].astype(np.float64)

    truth.run(weights, batch, tap)
    return own
