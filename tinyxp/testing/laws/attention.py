"""Laws of attention's arithmetic: scores, weights, and the weighted means of values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import (
    check_rounded_once,
    dtypes,
    no_warnings,
    normal,
    round_to,
    shapes,
    tight,
)
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Vaswani et al., 2017, section 3.2.1"
MASKED = "Vaswani et al., 2017, section 3.2.3"
POOL = [(2, 2, 2, 3, 4, 3), (1, 1, 3, 2, 4, 4)]

law = laws_of("op", "attention", SOURCE, "ops trace")


class Operands(NamedTuple):
    """The arguments of attention."""

    q: np.ndarray  # (b, h, t, hd)
    k: np.ndarray  # (b, g, s, hd)
    v: np.ndarray  # (b, g, s, hd)
    visible: np.ndarray  # (b or 1, 1, t, s) bool

    @property
    def seen(self) -> np.ndarray:
        """Return ``visible`` for every row and head."""
        return np.broadcast_to(self.visible, (*self.q.shape[:3], self.k.shape[2]))


def draw_operands(subject: Decoder, draw: Draw, *, least: int = 0) -> Operands:
    """Draw operands, from one head to groups of three; every query sees at least ``least`` keys."""
    limits = ((1, 2), (1, 3), (1, 3), (1, 4), (1, 5), (1, 6))
    b, g, shared, t, s, hd = draw("b, g, h/g, t, s, hd", shapes(subject, *limits, pool=POOL))
    rng = np.random.default_rng(draw("seed", seeds()))
    rows = 1 if draw("same in all rows", st.booleans()) else b
    visible = rng.random((rows, 1, t, s)) < draw("share", st.sampled_from([1.0, 0.6, 0.2]))
    if least:
        np.put_along_axis(visible, rng.integers(0, s, size=(rows, 1, t, 1)), True, axis=-1)
    q, k, v = (rng.normal(size=(b, n, l, hd)) for n, l in ((g * shared, t), (g, s), (g, s)))
    return Operands(q, k, v, visible)


def attend(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any) -> Any:
    return ops.attention(q, k, v, visible, xp=xp)


def tapped(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any) -> Any:
    """Return the heads, the scores and the weights."""
    seen = {}

    def tap(name: str, x: Any) -> Any:
        seen[name] = x
        return x

    return ops.attention(q, k, v, visible, xp=xp, tap=tap), seen["scores"], seen["weights"]


def halved(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any, *, point: str) -> Any:
    """Return the heads if a tap halves the values at ``point``, and the weights that the tap saw."""
    seen = {}

    def tap(name: str, x: Any) -> Any:
        seen[name] = x * 0.5 if name == point else x
        return seen[name]

    return ops.attention(q, k, v, visible, xp=xp, tap=tap), seen["weights"]


@law(
    "The score of a query and a key is their dot product over sqrt(hd), before the mask; query head i reads "
    "key head i // (h / g)."
)
def scores_are_scaled_products(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    _, scores, _ = subject.run(tapped, *operands)
    expected = np.empty(operands.seen.shape)
    per_group = operands.q.shape[1] // operands.k.shape[1]
    for b, h, t, s in np.ndindex(expected.shape):
        pairs = zip(operands.q[b, h, t], operands.k[b, h // per_group, s], strict=True)
        expected[b, h, t, s] = math.fsum(x * y for x, y in pairs) / math.sqrt(operands.q.shape[-1])
    subject.close(scores, expected, "scores", within=tight(subject))


@law(
    "Weights are the softmax of the scores of visible keys: exactly 0 for a hidden key, and adding up to 1.",
    source=MASKED,
)
def attention_weights_are_softmax_of_scores(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    _, scores, weights = subject.run(tapped, *operands)
    subject.equal(weights[~operands.seen], np.zeros(int((~operands.seen).sum())), "a masked weight")
    subject.close(weights.sum(axis=-1), operands.seen.any(axis=-1).astype(float), "a sum of weights")
    exponentials = np.where(operands.seen, np.exp(scores), 0.0)
    total = exponentials.sum(axis=-1, keepdims=True)
    subject.close(weights, exponentials / np.where(total > 0.0, total, 1.0), "weights", within=tight(subject))


@law("A head's output is the mean of the values, weighted by its attention weights.")
def heads_are_weighted_means(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    heads, _, weights = subject.run(tapped, *operands)
    expected = np.zeros(operands.q.shape)
    per_group = operands.q.shape[1] // operands.k.shape[1]
    for b, h, t, s in np.ndindex(operands.seen.shape):
        expected[b, h, t] += weights[b, h, t, s] * operands.v[b, h // per_group, s]
    subject.close(heads, expected, "heads", within=tight(subject))


@law(
    "Attention is the sum over visible keys of exp(q k / sqrt(hd)) v, divided by the sum of the "
    "exponentials.",
    needs="ops",
)
def attention_by_hand(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    expected = np.zeros(operands.q.shape)
    per_group = operands.q.shape[1] // operands.k.shape[1]
    for b, h, t in np.ndindex(operands.q.shape[:3]):
        seen = operands.seen[b, h, t]
        keys, values = (x[b, h // per_group][seen] for x in (operands.k, operands.v))
        factors = [math.exp(math.fsum(operands.q[b, h, t] * k) / math.sqrt(k.size)) for k in keys]
        for factor, value in zip(factors, values, strict=True):
            expected[b, h, t] += factor / math.fsum(factors) * value
    subject.close(subject.run(attend, *operands), expected, "heads", within=tight(subject))


@law(
    "A tap of attention can replace the scores before the softmax, and the weights before the values.",
    source="tinyxp's own contract: a tap returns the value that goes on",
)
def attention_takes_what_taps_return(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw)
    colder, weights = subject.run(halved, *operands, point="scores")
    subject.close(colder, subject.run(attend, 0.5 * operands.q, *operands[1:]), "heads of halved scores")
    fewer, left = subject.run(halved, *operands, point="weights")
    subject.close(fewer, 0.5 * subject.run(attend, *operands), "heads of halved weights")
    subject.close(left.sum(axis=-1), 0.5 * operands.seen.any(axis=-1), "halved weights")
    subject.close(weights.sum(axis=-1), operands.seen.any(axis=-1).astype(float), "weights of halved scores")


@law(
    "A head's output is between the values that its query sees: equal values are returned, a single value "
    "exactly.",
    needs="ops",
)
def heads_lie_between_visible_values(subject: Decoder, draw: Draw) -> None:
    operands = draw_operands(subject, draw, least=1)
    per_group = operands.q.shape[1] // operands.k.shape[1]
    values = np.repeat(operands.v, per_group, axis=1)[:, :, None]  # (b, h, 1, s, hd)
    heads, seen = subject.run(attend, *operands), operands.seen[..., None]
    low = np.where(seen, values, np.inf).min(axis=3)
    high = np.where(seen, values, -np.inf).max(axis=3)
    rounding = tight(subject) * max(1.0, float(np.abs(values).max()))
    assert (heads >= low - rounding).all(), "a head is below all values that it sees"
    assert (heads <= high + rounding).all(), "a head is above all values that it sees"
    alone = operands.seen.sum(axis=-1) == 1
    subject.equal(heads[alone], round_to(subject, low, subject.dtype)[alone], "a head that sees one value")
    same = np.broadcast_to(operands.v[:, :, :1], operands.v.shape)
    subject.close(
        subject.run(attend, operands.q, operands.k, same, operands.visible),
        np.broadcast_to(values[:, :, :, 0], heads.shape),
        "a head of equal values",
        within=tight(subject),
    )


@law(
    "Queries and keys of variance 1 have scores of variance 1, for every head size.",
    source="Vaswani et al., 2017, section 3.2.1, footnote 4",
    examples=4,
)
def scores_have_variance_one(subject: Decoder, draw: Draw) -> None:
    # The squares of 2048 independent scores have mean 1 and variance 2 + 6 / hd. Their average differs from 1
    # by 0.3 only at 8 standard deviations: less than once in 10^9 correct cases.
    hd = draw("hd", st.sampled_from([8, 64] if subject.pooled else [8, 32, 64, 128]))
    q, k = normal(draw("seed", seeds()), 2, 2048, 1, 1, hd)
    _, scores, _ = subject.run(tapped, q, k, k, np.ones((1, 1, 1, 1), dtype=bool))
    variance = float(np.mean(scores.astype(np.float64) ** 2))
    assert abs(variance - 1.0) <= 0.3, f"scores of heads of width {hd} have variance {variance:.3f}"


@law(
    "Scores are summed in at least float32: q = k = [32] * 64 scores 8192 in float16, which cannot represent "
    "the sum 65536.",
    source="The fault of half-precision attention that sums before it scales",
)
def scores_are_summed_in_float32(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    c = draw("c", st.sampled_from([32.0, 16.0, 40.0]))
    x = np.full((1, 1, 2, 64), c)
    with no_warnings():
        heads, scores, weights = subject.run(tapped, x, x, x, np.ones((1, 1, 2, 2), dtype=bool), dtype=dtype)
    subject.equal(scores, np.full((1, 1, 2, 2), c * c * 8.0), f"scores in {dtype}")
    subject.equal(weights, np.full((1, 1, 2, 2), 0.5), f"weights in {dtype}")
    subject.equal(heads, x, f"heads in {dtype}")


@law(
    "In every dtype a score is the exact product, rounded once.",
    source="tinyxp's own contract: sums of products are in float32 at least",
)
def scores_are_rounded_once(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    seed = draw("seed", seeds())
    q, k = (round_to(subject, normal(seed + i, 1, 2, 3, 12), dtype) for i in (0, 1))
    _, scores, _ = subject.run(tapped, q, k, k, np.ones((1, 1, 3, 3), dtype=bool), dtype=dtype)
    check_rounded_once(subject, scores, q @ k.swapaxes(-1, -2) / math.sqrt(12.0), dtype, "a score")
