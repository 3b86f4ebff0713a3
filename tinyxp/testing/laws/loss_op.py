"""Laws of cross_entropy: the mean surprise at the targets that count, in nats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON, bare_name
from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.operands import (
    LARGEST,
    applied,
    dtypes,
    gradient,
    normal,
    rounded,
    shapes,
    silence,
    tight,
)
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subject import Decoder

SOURCE = "Shannon, 1948, section 6; targets of -100 are left out, as torch.nn.CrossEntropyLoss does"
OURS = "tinyxp's own contract: -100 marks a target that is left out, and no target at all gives 0"
LEFT_OUT = -100


def loss(ops: Any, xp: Any, logits: Any, targets: Any) -> Any:
    return ops.cross_entropy(logits, targets, xp=xp)


def drawn(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """logits (b, t, n) and targets (b, t), some of them left out, at least one counted."""
    shape = draw("shape", shapes(subject, (1, 3), (1, 5), (1, 7), pool=[(2, 4, 5)]))
    seed = draw("seed", seeds())
    logits = normal(seed, *shape, scale=draw("scale", st.sampled_from([1.0, 5.0, 30.0])))
    rng = np.random.default_rng(seed + 1)
    targets = rng.integers(0, shape[-1], size=shape[:2])
    left_out = rng.random(shape[:2]) < draw("left out", st.sampled_from([0.0, 0.5, 0.9]))
    left_out.flat[0] = False
    return logits, np.where(left_out, LEFT_OUT, targets)


def surprises(logits: np.ndarray, targets: np.ndarray) -> list[float]:
    """-log of the share of exp(logit) that each counted target has."""
    found = []
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.flat, strict=True):
        if target != LEFT_OUT:
            found.append(math.log(math.fsum(math.exp(l - row[target]) for l in row)))
    return found


@law(
    "The loss is the mean over the counted targets of the log of the sum of exp(l - l[target]).",
    of="op",
    region="loss",
    source=SOURCE,
    needs="ops",
)
def cross_entropy_is_the_mean_surprise(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    each = surprises(logits, targets)
    with silence():
        found = subject.run(loss, logits, targets)
    subject.close(found, math.fsum(each) / len(each), "the loss", within=tight(subject))


@law(
    "The loss is at least 0 and at least the mean gap below the top logit, and at most ln n above that.",
    of="op",
    region="loss",
    source=SOURCE,
    needs="ops",
)
def cross_entropy_is_bounded(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    counted = targets != LEFT_OUT
    chosen = np.take_along_axis(logits, np.where(counted, targets, 0)[..., None], axis=-1)[..., 0]
    gap = float(np.mean((logits.max(axis=-1) - chosen)[counted]))
    found = float(subject.run(loss, logits, targets))
    rounding = tight(subject) * max(1.0, gap)
    assert found >= max(0.0, gap - rounding), f"the loss {found!r} is below the mean gap {gap!r}"
    most = gap + math.log(logits.shape[-1])
    assert found <= most + rounding, f"the loss {found!r} is above {most!r}, the mean gap and ln n"


@law(
    "A constant added to all logits of a token changes no digit of the loss, however large it is.",
    of="op",
    region="loss",
    source="Blanchard, Higham & Higham, 2021: Accurately computing the log-sum-exp and softmax functions",
    needs="ops",
)
def cross_entropy_ignores_a_constant(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    logits = np.round(logits * 8.0) / 8.0  # which float32 holds beside the constants
    constants = 2.0 ** draw("power", st.integers(0, 15)) * np.sign(normal(7, *targets.shape, 1))
    with silence():
        before, after = (subject.run(loss, x, targets, dtype="float32") for x in (logits, logits + constants))
    subject.close(after, before, "the loss of moved logits", within=4.0 * EPSILON["float32"])


@law(
    "The loss does not overflow: of logits at plus or minus half of the largest float it is the gap to the "
    "top, plus the log of how many stand there.",
    of="op",
    region="loss",
    source="Blanchard, Higham & Higham, 2021: Accurately computing the log-sum-exp and softmax functions",
    needs="ops",
)
def cross_entropy_does_not_overflow(subject: Decoder, draw: Draw) -> None:
    n = 5 if subject.pooled else draw("n", st.integers(1, 6))
    high = np.asarray(draw("high", st.lists(st.booleans(), min_size=n, max_size=n)))
    target = draw("target", st.integers(0, n - 1))
    dtype = draw("dtype", dtypes(subject))
    half = LARGEST[dtype] * (1.0 - EPSILON[dtype] / 2.0)
    with silence():
        logits = np.where(high, half, -half)[None, None]
        found = subject.run(loss, logits, np.asarray([[target]]), dtype=dtype)
    top = high if high.any() else ~high
    gap = 0.0 if top[target] else 2.0 * half
    subject.close(found, gap + math.log(top.sum()), f"the loss in {dtype}", within=4.0 * EPSILON["float32"])


@law("Of equal logits the loss is ln n.", of="op", region="loss", source=SOURCE, needs="ops")
def cross_entropy_of_equals_is_ln_n(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    level = draw("level", st.sampled_from([0.0, -3.5, 1e4]))
    found = subject.run(loss, np.full(logits.shape, level), targets)
    subject.close(found, math.log(logits.shape[-1]), "the loss of equal logits", within=tight(subject))


@law(
    "A logit c above n - 1 equal others has the loss ln(1 + (n - 1) e^-c): 0.000181583 for 10 above 4.",
    of="op",
    region="loss",
    source=SOURCE,
    needs="ops",
)
def cross_entropy_of_a_sure_guess(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    c = draw("c", st.floats(0.0, 20.0))
    n = logits.shape[-1]
    sure = np.where(np.arange(n) == targets[..., None], c, 0.0)
    found = subject.run(loss, sure, targets)
    subject.close(found, math.log1p((n - 1) * math.exp(-c)), "the loss", within=tight(subject))


@law(
    "What is predicted for a target of -100 moves nothing, and without a single target the loss is 0.",
    of="op",
    region="loss",
    source=OURS,
    needs="ops",
)
def left_out_targets_move_nothing(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    others = normal(draw("others", seeds()), *logits.shape, scale=100.0)
    changed = np.where((targets == LEFT_OUT)[..., None], others, logits)
    with silence():
        found, again = (subject.run(loss, x, targets) for x in (logits, changed))
        nothing = subject.run(loss, others, np.full_like(targets, LEFT_OUT))
    subject.close(again, found, "the loss after other logits at targets that are left out")
    subject.equal(nothing, np.zeros(()), "the loss without targets")


@law(
    "The loss of a batch is the mean of its pieces' losses, each weighed by its number of counted targets.",
    of="op",
    region="loss",
    source="The definition of a mean over tokens; means of means are the fault of gradient accumulation",
    needs="ops",
)
def pieces_weigh_by_their_targets(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    t = targets.shape[1]
    middle = draw("middle", st.just(t // 2) if subject.pooled else st.integers(1, t)) or 1
    pieces = [slice(0, middle), slice(middle, t)][: 1 + (middle < t)]
    counts = [int((targets[:, piece] != LEFT_OUT).sum()) for piece in pieces]
    losses = [float(subject.run(loss, logits[:, piece], targets[:, piece])) for piece in pieces]
    expected = math.fsum(n * x for n, x in zip(counts, losses, strict=True)) / sum(counts)
    subject.close(subject.run(loss, logits, targets), expected, "the loss of the whole")


@law(
    "Of logits in any dtype the loss is computed in float32 at least, and over thousands of tokens too.",
    of="op",
    region="precision",
    source="tinyxp's own contract: the loss is in float32 at least",
    needs="ops",
)
def the_loss_is_wide(subject: Decoder, draw: Draw) -> None:
    seed = draw("seed", seeds())
    targets = np.random.default_rng(seed + 1).integers(0, 2, size=(1, 3001))
    for dtype in subject.backend.dtypes():  # all of them, since a fault may need the narrowest
        logits = rounded(subject, normal(seed, 1, 3001, 2), dtype)  # which cannot count so far
        found = applied(subject, loss, subject.array(logits, dtype), subject.array(targets))
        wide = "float64" if dtype == "float64" else "float32"
        assert bare_name(found.dtype) == wide, f"the loss of {dtype} logits is in {bare_name(found.dtype)}"
        each = surprises(logits, targets)
        subject.close(
            subject.host(found), math.fsum(each) / len(each), f"of {dtype}", within=32.0 * EPSILON[wide]
        )


@law(
    "The gradient of the loss is softmax minus one at the target, over the number of counted targets.",
    of="op",
    region="loss",
    source="Goodfellow, Bengio & Courville, 2016, section 6.2.2.3",
    needs="ops gradients",
)
def cross_entropy_has_its_gradient(subject: Decoder, draw: Draw) -> None:
    logits, targets = drawn(subject, draw)
    if draw("none counted", st.booleans()):
        targets = np.full_like(targets, LEFT_OUT)
    counted = (targets != LEFT_OUT)[..., None]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=-1, keepdims=True)
    target = np.arange(logits.shape[-1]) == targets[..., None]
    expected = np.where(counted, (shares - target) / max(int(counted.sum()), 1), 0.0)
    subject.close(gradient(subject, loss, logits, targets), expected, "the gradient")
