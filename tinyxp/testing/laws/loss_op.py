"""Laws of cross_entropy: the mean surprise at the counted targets, in nats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON, bare_name
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import (
    LARGEST,
    apply_to_arrays,
    dtypes,
    gradient,
    no_warnings,
    normal,
    round_to,
    shapes,
    tight,
)
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Shannon, 1948, section 6; targets of -100 are left out, as torch.nn.CrossEntropyLoss does"
OURS = "tinyxp's own contract: -100 marks a target that is left out, and no target at all gives 0"
LEFT_OUT = -100

law = laws_of("op", "loss", SOURCE, "ops")


def loss(ops: Any, xp: Any, logits: Any, targets: Any) -> Any:
    return ops.cross_entropy(logits, targets, xp=xp)


def draw_operands(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits (b, t, n) and targets (b, t), some of them -100, at least one not."""
    shape = draw("shape", shapes(subject, (1, 3), (1, 5), (1, 7), pool=[(2, 4, 5)]))
    seed = draw("seed", seeds())
    logits = normal(seed, *shape, scale=draw("scale", st.sampled_from([1.0, 5.0, 30.0])))
    rng = np.random.default_rng(seed + 1)
    targets = rng.integers(0, shape[-1], size=shape[:2])
    left_out = rng.random(shape[:2]) < draw("left out", st.sampled_from([0.0, 0.5, 0.9]))
    left_out.flat[0] = False
    return logits, np.where(left_out, LEFT_OUT, targets)


def surprises(logits: np.ndarray, targets: np.ndarray) -> list[float]:
    """Return -log of each counted target's share of exp(logit)."""
    found = []
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.flat, strict=True):
        if target != LEFT_OUT:
            found.append(math.log(math.fsum(math.exp(l - row[target]) for l in row)))
    return found


@law("The loss is the mean over the counted targets of log sum exp(l - l[target]).")
def cross_entropy_is_the_mean_surprise(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    each = surprises(logits, targets)
    with no_warnings():
        found = subject.run(loss, logits, targets)
    subject.close(found, math.fsum(each) / len(each), "the loss", within=tight(subject))


@law("The loss is at least 0, at least the mean gap to the top logit, and at most ln n above that gap.")
def cross_entropy_is_bounded(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    counted = targets != LEFT_OUT
    chosen = np.take_along_axis(logits, np.where(counted, targets, 0)[..., None], axis=-1)[..., 0]
    gap = float(np.mean((logits.max(axis=-1) - chosen)[counted]))
    found = float(subject.run(loss, logits, targets))
    rounding = tight(subject) * max(1.0, gap)
    assert found >= max(0.0, gap - rounding), f"the loss {found!r} is below the mean gap {gap!r}"
    most = gap + math.log(logits.shape[-1])
    assert found <= most + rounding, f"the loss {found!r} is above {most!r}, the mean gap and ln n"


@law(
    "Adding a constant, however large, to all logits of a token does not change the loss.",
    source="Blanchard, Higham & Higham, 2021: Accurately computing the log-sum-exp and softmax functions",
)
def cross_entropy_ignores_a_constant(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    logits = np.round(logits * 8.0) / 8.0  # exact in float32 beside the constants
    constants = 2.0 ** draw("power", st.integers(0, 15)) * np.sign(normal(7, *targets.shape, 1))
    with no_warnings():
        before, after = (subject.run(loss, x, targets, dtype="float32") for x in (logits, logits + constants))
    subject.close(after, before, "the loss of moved logits", within=4.0 * EPSILON["float32"])


@law(
    "The loss does not overflow: for logits of plus or minus half the largest float it is the gap to the top "
    "plus the log of how many logits are at the top.",
    source="Blanchard, Higham & Higham, 2021: Accurately computing the log-sum-exp and softmax functions",
)
def cross_entropy_does_not_overflow(subject: Decoder, draw: Draw) -> None:
    n = 5 if subject.pooled else draw("n", st.integers(1, 6))
    high = np.asarray(draw("high", st.lists(st.booleans(), min_size=n, max_size=n)))
    target = draw("target", st.integers(0, n - 1))
    dtype = draw("dtype", dtypes(subject))
    half = LARGEST[dtype] * (1.0 - EPSILON[dtype] / 2.0)
    with no_warnings():
        logits = np.where(high, half, -half)[None, None]
        found = subject.run(loss, logits, np.asarray([[target]]), dtype=dtype)
    top = high if high.any() else ~high
    gap = 0.0 if top[target] else 2.0 * half
    subject.close(found, gap + math.log(top.sum()), f"the loss in {dtype}", within=4.0 * EPSILON["float32"])


@law("The loss of equal logits is ln n.")
def cross_entropy_of_equals_is_ln_n(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    level = draw("level", st.sampled_from([0.0, -3.5, 1e4]))
    found = subject.run(loss, np.full(logits.shape, level), targets)
    subject.close(found, math.log(logits.shape[-1]), "the loss of equal logits", within=tight(subject))


@law(
    "If the target's logit is c above n - 1 equal others, the loss is ln(1 + (n - 1) e^-c): 0.000181583 for "
    "10 above 4."
)
def cross_entropy_of_a_sure_guess(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    c = draw("c", st.floats(0.0, 20.0))
    n = logits.shape[-1]
    sure = np.where(np.arange(n) == targets[..., None], c, 0.0)
    found = subject.run(loss, sure, targets)
    subject.close(found, math.log1p((n - 1) * math.exp(-c)), "the loss", within=tight(subject))


@law("Logits at a target of -100 do not affect the loss; without any target the loss is 0.", source=OURS)
def left_out_targets_move_nothing(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    others = normal(draw("others", seeds()), *logits.shape, scale=100.0)
    changed = np.where((targets == LEFT_OUT)[..., None], others, logits)
    with no_warnings():
        found, again = (subject.run(loss, x, targets) for x in (logits, changed))
        nothing = subject.run(loss, others, np.full_like(targets, LEFT_OUT))
    subject.close(again, found, "the loss after other logits at targets that are left out")
    subject.equal(nothing, np.zeros(()), "the loss without targets")


@law(
    "The loss of a batch is the mean of its pieces' losses, weighted by their numbers of counted targets.",
    source="The definition of a mean over tokens; means of means are the fault of gradient accumulation",
)
def pieces_weigh_by_their_targets(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    t = targets.shape[1]
    middle = draw("middle", st.just(t // 2) if subject.pooled else st.integers(1, t)) or 1
    pieces = [slice(0, middle), slice(middle, t)][: 1 + (middle < t)]
    counts = [int((targets[:, piece] != LEFT_OUT).sum()) for piece in pieces]
    losses = [float(subject.run(loss, logits[:, piece], targets[:, piece])) for piece in pieces]
    expected = math.fsum(n * x for n, x in zip(counts, losses, strict=True)) / sum(counts)
    subject.close(subject.run(loss, logits, targets), expected, "the loss of the whole")


@law(
    "The loss of logits in any dtype is computed in at least float32, also over thousands of tokens.",
    region="precision",
    source="tinyxp's own contract: the loss is in float32 at least",
)
def the_loss_is_wide(subject: Decoder, draw: Draw) -> None:
    seed = draw("seed", seeds())
    targets = np.random.default_rng(seed + 1).integers(0, 2, size=(1, 3001))
    for dtype in subject.backend.dtypes():  # all, because a fault may need the narrowest
        logits = round_to(subject, normal(seed, 1, 3001, 2), dtype)  # which cannot count that far
        found = apply_to_arrays(subject, loss, subject.array(logits, dtype), subject.array(targets))
        wide = "float64" if dtype == "float64" else "float32"
        assert bare_name(found.dtype) == wide, f"the loss of {dtype} logits is in {bare_name(found.dtype)}"
        each = surprises(logits, targets)
        subject.close(
            subject.host(found), math.fsum(each) / len(each), f"of {dtype}", within=32.0 * EPSILON[wide]
        )


@law(
    "The gradient of the loss is softmax minus one at the target, divided by the number of counted targets.",
    source="Goodfellow, Bengio & Courville, 2016, section 6.2.2.3",
    needs="ops gradients",
)
def cross_entropy_has_its_gradient(subject: Decoder, draw: Draw) -> None:
    logits, targets = draw_operands(subject, draw)
    if draw("none counted", st.booleans()):
        targets = np.full_like(targets, LEFT_OUT)
    counted = (targets != LEFT_OUT)[..., None]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=-1, keepdims=True)
    target = np.arange(logits.shape[-1]) == targets[..., None]
    expected = np.where(counted, (shares - target) / max(int(counted.sum()), 1), 0.0)
    subject.close(gradient(subject, loss, logits, targets), expected, "the gradient")
