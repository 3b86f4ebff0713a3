"""Laws of attention's arithmetic: scores, the weights that they become, and the means that those take."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.operands import (
    dtypes,
    normal,
    rounded,
    rounded_once,
    shapes,
    silence,
    tight,
)
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subject import Decoder

SOURCE = "Vaswani et al., 2017, section 3.2.1"
MASKED = "Vaswani et al., 2017, section 3.2.3"
POOL = [(2, 2, 2, 3, 4, 3), (1, 1, 3, 2, 4, 4)]


class Operands(NamedTuple):
    """What attention takes."""

    q: np.ndarray  # (b, h, t, hd)
    k: np.ndarray  # (b, g, s, hd)
    v: np.ndarray  # (b, g, s, hd)
    visible: np.ndarray  # (b or 1, 1, t, s) bool

    @property
    def seen(self) -> np.ndarray:
        """visible for every row and head."""
        return np.broadcast_to(self.visible, (*self.q.shape[:3], self.k.shape[2]))


def operands(subject: Decoder, draw: Draw, *, least: int = 0) -> Operands:
    """Drawn ones, from one head to groups of three; every query sees ``least`` keys or more."""
    limits = ((1, 2), (1, 3), (1, 3), (1, 4), (1, 5), (1, 6))
    b, g, shared, t, s, hd = draw("b, g, h/g, t, s, hd", shapes(subject, *limits, pool=POOL))
    rng = np.random.default_rng(draw("seed", seeds()))
    rows = 1 if draw("same in all rows", st.booleans()) else b
    visible = rng.random((rows, 1, t, s)) < draw("share", st.sampled_from([1.0, 0.6, 0.2]))
    if least:
        np.put_along_axis(visible, rng.integers(0, s, size=(rows, 1, t, 1)), True, axis=-1)
    q, k, v = (rng.normal(size=(b, n, l, hd)) for n, l in ((g * shared, t), (g, s), (g, s)))
    return Operands(q, k, v, visible)


def attention(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any) -> Any:
    return ops.attention(q, k, v, visible, xp=xp)


def tapped(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any) -> Any:
    """The heads, the scores and the weights."""
    seen = {}

    def tap(name: str, x: Any) -> Any:
        seen[name] = x
        return x

    return ops.attention(q, k, v, visible, xp=xp, tap=tap), seen["scores"], seen["weights"]


def halved(ops: Any, xp: Any, q: Any, k: Any, v: Any, visible: Any, *, point: str) -> Any:
    """The heads, where a tap halves what it sees at ``point``; and what it saw of the weights."""
    seen = {}

    def tap(name: str, x: Any) -> Any:
        seen[name] = x * 0.5 if name == point else x
        return seen[name]

    return ops.attention(q, k, v, visible, xp=xp, tap=tap), seen["weights"]


@law(
    "The score of a query and a key is their product over sqrt(hd), before the mask; head i reads key head "
    "i // (h / g).",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops trace",
)
def scores_are_scaled_products(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    _, scores, _ = subject.run(tapped, *given)
    expected = np.empty(given.seen.shape)
    per_group = given.q.shape[1] // given.k.shape[1]
    for b, h, t, s in np.ndindex(expected.shape):
        pairs = zip(given.q[b, h, t], given.k[b, h // per_group, s], strict=True)
        expected[b, h, t, s] = math.fsum(x * y for x, y in pairs) / math.sqrt(given.q.shape[-1])
    subject.close(scores, expected, "scores", within=tight(subject))


@law(
    "Weights are exactly 0 where a key is hidden, add up to 1 elsewhere, and are the softmax of the scores.",
    of="op",
    region="attention",
    source=MASKED,
    needs="ops trace",
)
def attention_weights_are_softmax_of_scores(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    _, scores, weights = subject.run(tapped, *given)
    subject.equal(weights[~given.seen], np.zeros(int((~given.seen).sum())), "a masked weight")
    subject.close(weights.sum(axis=-1), given.seen.any(axis=-1).astype(float), "a sum of weights")
    exponentials = np.where(given.seen, np.exp(scores), 0.0)
    total = exponentials.sum(axis=-1, keepdims=True)
    subject.close(weights, exponentials / np.where(total > 0.0, total, 1.0), "weights", within=tight(subject))


@law(
    "A head is the mean of the values by its weights.",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops trace",
)
def heads_are_weighted_means(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    heads, _, weights = subject.run(tapped, *given)
    expected = np.zeros(given.q.shape)
    per_group = given.q.shape[1] // given.k.shape[1]
    for b, h, t, s in np.ndindex(given.seen.shape):
        expected[b, h, t] += weights[b, h, t, s] * given.v[b, h // per_group, s]
    subject.close(heads, expected, "heads", within=tight(subject))


@law(
    "Attention is exp(q k / sqrt(hd)) over its sum, times v, over the keys that are visible.",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops",
)
def attention_by_hand(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    expected = np.zeros(given.q.shape)
    per_group = given.q.shape[1] // given.k.shape[1]
    for b, h, t in np.ndindex(given.q.shape[:3]):
        there = given.seen[b, h, t]
        keys, values = (x[b, h // per_group][there] for x in (given.k, given.v))
        factors = [math.exp(math.fsum(given.q[b, h, t] * k) / math.sqrt(k.size)) for k in keys]
        for factor, value in zip(factors, values, strict=True):
            expected[b, h, t] += factor / math.fsum(factors) * value
    subject.close(subject.run(attention, *given), expected, "heads", within=tight(subject))


@law(
    "A tap of attention may replace what it sees: scores before the softmax, weights before the values.",
    of="op",
    region="attention",
    source="tinyxp's own contract: a tap returns the value that goes on",
    needs="ops trace",
)
def attention_takes_what_taps_return(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw)
    colder, weights = subject.run(halved, *given, point="scores")
    subject.close(colder, subject.run(attention, 0.5 * given.q, *given[1:]), "heads of halved scores")
    fewer, left = subject.run(halved, *given, point="weights")
    subject.close(fewer, 0.5 * subject.run(attention, *given), "heads of halved weights")
    subject.close(left.sum(axis=-1), 0.5 * given.seen.any(axis=-1), "halved weights")
    subject.close(weights.sum(axis=-1), given.seen.any(axis=-1).astype(float), "weights of halved scores")


@law(
    "A head lies between the values that its query sees: of equal ones it is each, of one alone exactly it.",
    of="op",
    region="attention",
    source=SOURCE,
    needs="ops",
)
def heads_lie_between_visible_values(subject: Decoder, draw: Draw) -> None:
    given = operands(subject, draw, least=1)
    per_group = given.q.shape[1] // given.k.shape[1]
    values = np.repeat(given.v, per_group, axis=1)[:, :, None]  # (b, h, 1, s, hd)
    heads, seen = subject.run(attention, *given), given.seen[..., None]
    low = np.where(seen, values, np.inf).min(axis=3)
    high = np.where(seen, values, -np.inf).max(axis=3)
    rounding = tight(subject) * max(1.0, float(np.abs(values).max()))
    assert (heads >= low - rounding).all(), "a head is below all values that it sees"
    assert (heads <= high + rounding).all(), "a head is above all values that it sees"
    alone = given.seen.sum(axis=-1) == 1
    subject.equal(heads[alone], rounded(subject, low, subject.dtype)[alone], "a head that sees one value")
    same = np.broadcast_to(given.v[:, :, :1], given.v.shape)
    subject.close(
        subject.run(attention, given.q, given.k, same, given.visible),
        np.broadcast_to(values[:, :, :, 0], heads.shape),
        "a head of equal values",
        within=tight(subject),
    )


@law(
    "Scores of queries and keys of variance 1 have variance 1, whatever the width of a head.",
    of="op",
    region="attention",
    source="Vaswani et al., 2017, section 3.2.1, footnote 4",
    needs="ops trace",
    examples=4,
)
def scores_have_variance_one(subject: Decoder, draw: Draw) -> None:
    """The squares of 2048 independent scores have mean 1 and variance 2 + 6 / hd, so that their average is
    0.3 away from 1 only where it is off by 8 standard deviations: less than once in 10^9 right cases."""
    hd = draw("hd", st.sampled_from([8, 64] if subject.pooled else [8, 32, 64, 128]))
    q, k = normal(draw("seed", seeds()), 2, 2048, 1, 1, hd)
    _, scores, _ = subject.run(tapped, q, k, k, np.ones((1, 1, 1, 1), dtype=bool))
    variance = float(np.mean(scores.astype(np.float64) ** 2))
    assert abs(variance - 1.0) <= 0.3, f"scores of heads of width {hd} have variance {variance:.3f}"


@law(
    "Scores are summed in float32 at least: q = k = [32] * 64 score 8192 in float16, which has no 65536.",
    of="op",
    region="attention",
    source="The fault of half-precision attention that sums before it scales",
    needs="ops trace",
)
def scores_are_summed_in_float32(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    c = draw("c", st.sampled_from([32.0, 16.0, 40.0]))
    x = np.full((1, 1, 2, 64), c)
    with silence():
        heads, scores, weights = subject.run(tapped, x, x, x, np.ones((1, 1, 2, 2), dtype=bool), dtype=dtype)
    subject.equal(scores, np.full((1, 1, 2, 2), c * c * 8.0), f"scores in {dtype}")
    subject.equal(weights, np.full((1, 1, 2, 2), 0.5), f"weights in {dtype}")
    subject.equal(heads, x, f"heads in {dtype}")


@law(
    "In every dtype a score is the exact product, rounded once.",
    of="op",
    region="attention",
    source="tinyxp's own contract: sums of products are in float32 at least",
    needs="ops trace",
)
def scores_are_rounded_once(subject: Decoder, draw: Draw) -> None:
    dtype = draw("dtype", dtypes(subject))
    seed = draw("seed", seeds())
    q, k = (rounded(subject, normal(seed + i, 1, 2, 3, 12), dtype) for i in (0, 1))
    _, scores, _ = subject.run(tapped, q, k, k, np.ones((1, 1, 3, 3), dtype=bool), dtype=dtype)
    rounded_once(subject, scores, q @ k.swapaxes(-1, -2) / math.sqrt(12.0), dtype, "a score")
