"""Laws of softmax: weights add up to 1, their ratios are exponentials, and hidden ones are 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import LARGEST, dtypes, gradient, no_warnings, normal, round_to, shapes
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Bridle, 1990: Probabilistic interpretation of feedforward classification network outputs"
MASKED = "Vaswani et al., 2017, section 3.2.3"
POOL = [(2, 3, 4)]

law = laws_of("op", "softmax", SOURCE, "ops")


def apply_softmax(ops: Any, xp: Any, x: Any, *, axis: int | None = None) -> Any:
    return ops.softmax(x, xp=xp) if axis is None else ops.softmax(x, xp=xp, axis=axis)


def masked(ops: Any, xp: Any, x: Any, visible: Any, *, axis: int | None = None) -> Any:
    named = {} if axis is None else {"axis": axis}
    return ops.softmax(x, xp=xp, visible=visible, **named)


def draw_scores(subject: Decoder, draw: Draw) -> tuple[np.ndarray, int | None, int]:
    """Draw scores of three axes, the axis argument (None: the default), and the axis that it means."""
    shape = draw("shape", shapes(subject, (1, 3), (1, 4), (1, 6), pool=POOL))
    x = normal(draw("seed", seeds()), *shape, scale=draw("scale", st.sampled_from([1.0, 5.0, 0.0])))
    axis = draw("axis", st.sampled_from([None, 1] if subject.pooled else [None, *range(-3, 3)]))
    return x, axis, -1 if axis is None else axis


def draw_visible(draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
    """Draw what is visible: all, much, little or nothing; the same along the first axis, or not."""
    share = draw("share", st.sampled_from([1.0, 0.7, 0.3, 0.0]))
    visible = np.random.default_rng(draw("mask seed", seeds())).random(shape) < share
    return visible[:1] if draw("shared", st.booleans()) else visible


@law("Softmax weights are not negative and add up to 1 along the axis.")
def softmax_rows_add_up_to_one(subject: Decoder, draw: Draw) -> None:
    x, axis, meant = draw_scores(subject, draw)
    weights = subject.run(apply_softmax, x, axis=axis)
    assert weights.shape == x.shape, f"softmax of {x.shape} has shape {weights.shape}"
    assert (weights >= 0.0).all(), f"a weight is {weights.min()}"
    total = weights.sum(axis=meant)
    subject.close(total, np.ones_like(total), "a sum of weights")


@law("The ratio of two weights of a row is the exponential of the difference of their scores.")
def softmax_ratios_are_exponentials(subject: Decoder, draw: Draw) -> None:
    x, axis, meant = draw_scores(subject, draw)
    rows = np.moveaxis(x, meant, -1).reshape(-1, x.shape[meant])
    weights = np.moveaxis(subject.run(apply_softmax, x, axis=axis), meant, -1).reshape(rows.shape)
    for row, found in zip(rows, weights, strict=True):
        top = int(np.argmax(row))
        expected = [found[top] * math.exp(score - row[top]) for score in row]
        subject.close(found, expected, "weights of a row")


@law("Adding a constant to all scores of a row changes no weight.")
def softmax_ignores_a_constant(subject: Decoder, draw: Draw) -> None:
    x, axis, meant = draw_scores(subject, draw)
    constants = normal(draw("constants", seeds()), *x.shape, scale=draw("size", st.sampled_from([1.0, 16.0])))
    constants = constants.take([0], axis=meant)
    moved = subject.run(apply_softmax, x + constants, axis=axis)
    subject.close(moved, subject.run(apply_softmax, x, axis=axis), "weights of moved scores")


@law(
    "A masked weight is exactly 0, whatever its score, and the others are those of the row without it.",
    source=MASKED,
)
def masking_leaves_out(subject: Decoder, draw: Draw) -> None:
    x, axis, meant = draw_scores(subject, draw)
    visible = draw_visible(draw, x.shape)
    seen = np.broadcast_to(visible, x.shape)
    x = np.where(seen, x, draw("hidden", st.sampled_from([0.0, 6e4, -6e4, math.inf, -math.inf, math.nan])))
    with no_warnings():
        weights = subject.run(masked, x, visible, axis=axis)
    subject.equal(weights[~seen], np.zeros(int((~seen).sum())), "a masked weight")
    length = x.shape[meant]
    every = [np.moveaxis(a, meant, -1).reshape(-1, length) for a in (x, seen, weights)]
    for row, there, found in zip(*every, strict=True):
        top = max(row[there], default=0.0)
        exponentials = [math.exp(score - top) for score in row[there]]
        subject.close(
            found[there], np.asarray(exponentials) / (math.fsum(exponentials) or 1.0), "weights that are seen"
        )


@law(
    "Softmax does not overflow: for scores of plus or minus half the largest float the top ones share 1.",
    source="Blanchard, Higham & Higham, 2021: Accurately computing the log-sum-exp and softmax functions",
)
def softmax_does_not_overflow(subject: Decoder, draw: Draw) -> None:
    width = 6 if subject.pooled else draw("width", st.integers(1, 6))
    flags = st.lists(st.booleans(), min_size=2 * width, max_size=2 * width)
    high, visible = (np.asarray(draw(name, flags)).reshape(2, width) for name in ("high", "visible"))
    dtype = draw("dtype", dtypes(subject))
    half = LARGEST[dtype] * (1.0 - EPSILON[dtype] / 2.0)
    x = np.where(high, half, -half)
    with no_warnings():
        found = subject.run(masked, x, visible, dtype=dtype)
    top = visible & (high | ~(high & visible).any(axis=-1, keepdims=True))
    expected = round_to(subject, top / np.maximum(top.sum(axis=-1, keepdims=True), 1), dtype)
    subject.equal(found, expected, f"weights in {dtype}")


@law(
    "A row that is masked completely has weights 0 and gradient 0, never NaN.",
    source=MASKED,
    needs="ops gradients",
)
def masked_rows_have_no_gradient(subject: Decoder, draw: Draw) -> None:
    shape = draw("shape", shapes(subject, (1, 3), (1, 4), (1, 6), pool=POOL))
    x = normal(draw("seed", seeds()), *shape)
    visible = draw_visible(draw, shape)
    seen = np.broadcast_to(visible, shape)
    weights = subject.run(masked, x, visible)
    factors = normal(1, *shape)
    # The gradient of sum(c softmax(x)) with respect to x is softmax(x) (c - mean of c under those weights).
    mean = (weights * factors).sum(axis=-1, keepdims=True)
    expected = np.where(seen, weights * (factors - mean), 0.0)
    subject.close(gradient(subject, weighted, x, visible, factors), expected, "the gradient")


def weighted(ops: Any, xp: Any, x: Any, visible: Any, factors: Any) -> Any:
    return ops.softmax(x, xp=xp, visible=visible) * factors
