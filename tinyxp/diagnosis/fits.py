"""Causes with a number in them, read off the side's values: dropout, a constant factor, other weights."""

from __future__ import annotations

import numpy as np

from tinyxp.comparison.distance import apart
from tinyxp.comparison.points import block_of, counted, kind
from tinyxp.diagnosis.choices import F
from tinyxp.diagnosis.faults import Fault
from tinyxp.diagnosis.faults.matrices import MATRICES
from tinyxp.diagnosis.held import Error, Held
from tinyxp.diagnosis.variant import Variant

DROPPED = ("embed", "attn.weights", "attn.heads", "attn.out", "mlp.hidden", "mlp.out")
"""Where models drop out."""


def dropout(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """Numbers set to 0 at random and the others divided by the share that is left."""
    if kind(point) not in DROPPED:
        return None
    found, right, counts = _values(held, v, point)
    if found.shape != right.shape:
        return None
    large = counts & (np.abs(right) > 1e-3 * np.max(np.abs(right), initial=0.0))
    gone = large & (found == 0.0)
    number, dropped = int(large.sum()), int(gone.sum())
    kept = large & ~gone
    if not dropped or not kept.any():
        return None
    ratio = float(np.median(found[kept] / right[kept]))
    share = dropped / number
    if ratio <= 1.0 or abs(1.0 - 1.0 / ratio - share) > 5.0 * np.sqrt(share * (1.0 - share) / number) + 1e-3:
        return None
    error = held.error(point, np.where(found == 0.0, 0.0, right * ratio))
    if error.excess > 1.0:
        return None
    p = 1.0 - 1.0 / ratio
    says = (
        f"{{it}} runs with dropout on: {share:.1%} of {kind(point)} is 0 "
        f"and the rest is multiplied by {ratio:.4g} (p = {p:.2g})"
    )
    return _given("dropout", says, "switch to evaluation: model.eval() in torch", (point,)), error


def factor(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """The right value times one number."""
    found, right, counts = _values(held, v, point)
    if found.shape != right.shape or not np.isfinite(found[np.broadcast_to(counts, found.shape)]).all():
        return None
    x, y = np.where(counts, right, 0.0), np.where(counts, found, 0.0)
    square = float(np.vdot(x, x))
    if square == 0.0:
        return None
    times = float(np.vdot(x, y)) / square
    error = held.error(point, right * times)
    if error.excess > 1.0 or times == 0.0:
        return None
    says = f"{{its}} {kind(point)} is {times:.6g} times what it should be"
    return _given(
        f"{kind(point)} times {times:.4g}",
        says,
        "look for a scale that is applied twice, or not at all",
        (point,),
    ), error


def other_weights(held: Held, v: Variant, point: str) -> Fault | None:
    """Where a product of known inputs is wrong and nothing explains it: its matrix or bias is another."""
    names = {point_: ours for ours, point_ in MATRICES.items()}
    config = held.weights.config
    if point == "logits":
        if config.tie_embeddings:
            return _given(
                "head not tied",
                "{its} head is a matrix of its own, neither the embedding nor that shifted or scaled",
                "use the embedding as the head (tie_embeddings is true)",
                (point,),
            )
        name = "head.weight"
    elif kind(point) in names:
        name = f"blocks.{block_of(point)}.{names[kind(point)]}.weight"
    elif point == "embed":
        name = "embed.weight"
    else:
        return None
    found, right, counts = _values(held, v, point)
    if found.shape != right.shape:
        return None
    by_unit = np.max(apart(found, right, counts), axis=tuple(range(found.ndim - 1)))
    usual = 20.0 * float(np.median(by_unit)) if np.median(by_unit) > 0.0 else 0.0
    rows = np.flatnonzero(by_unit > max(usual, 1e-3 * float(np.max(by_unit))))
    few = 0 < len(rows) <= len(by_unit) // 2
    some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
    where = f" in {'rows' if len(rows) > 1 else 'row'} {some}" if few and point != "embed" else ""
    matrix = name.removesuffix(".weight")
    says = f"{{its}} {matrix} is not this model's{where}, nor any rearrangement of it that is known here"
    return _given(
        f"other weights: {matrix}",
        says,
        f"compare {name} with the checkpoint's",
        (point,),
    )


def _values(held: Held, v: Variant, point: str) -> tuple[F, F, F]:
    found = held.trace[point].astype(np.float64)
    return found, held.right_at(v, point), counted(point, found.shape, held.batch)


def _given(key: str, says: str, fix: str, shows: tuple[str, ...]) -> Fault:
    """A fault that was read off, and is not planted."""
    return Fault(key, says, fix, tuple(kind(point) for point in shows), lambda v: v)
