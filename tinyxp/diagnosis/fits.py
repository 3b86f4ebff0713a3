"""Causes with a number in them, read off the side's values: dropout, a constant factor, other weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyxp.comparison.distance import apart
from tinyxp.comparison.points import block_of, counted, kind
from tinyxp.diagnosis.choices import F
from tinyxp.diagnosis.faults import Fault
from tinyxp.diagnosis.faults.matrices import MATRICES
from tinyxp.diagnosis.faults.norms import NORMED
from tinyxp.diagnosis.faults.positions import ROTATED
from tinyxp.diagnosis.faults.record import changing, choosing
from tinyxp.diagnosis.held import Error, Held
from tinyxp.diagnosis.variant import Variant
from tinyxp.params import parameter_shapes

DROPPED = ("embed", "attn.weights", "attn.heads", "attn.out", "mlp.hidden", "mlp.out")
"""Where models drop out."""
MOST_ROWS = 4096
"""Up to so many rows of a matrix are looked for in another order."""


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


def theta(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """Another base of the rotary frequencies, read off the angles at position 1."""
    name, config = point.removesuffix("_rotated"), held.weights.config
    if not kind(point).endswith("_rotated") or name not in held.trace or config.rope_scaling is not None:
        return None
    (found, right, _), half = _values(held, v, point), config.head_dim // 2
    if found.shape != right.shape:
        return None
    b, heads, t, hd = found.shape
    before = held.trace[name].astype(np.float64).reshape(b, t, heads, hd).swapaxes(1, 2)
    where = held.batch.real.cumsum(axis=1) == 2  # each row's second real token stands at position 1
    if held.batch.mask is not None or t < 2 or half < 2:
        where = np.zeros((b, t), bool)
        where[:, 1:2] = held.batch.mask is None
    if not where.any():
        return None
    x = (before[..., :half] + 1j * before[..., half:]).swapaxes(1, 2)[where]
    y = (found[..., :half] + 1j * found[..., half:]).swapaxes(1, 2)[where]
    angles = np.abs(np.angle(np.sum(y * np.conj(x), axis=(0, 1))))[1:]
    if not np.isfinite(angles).all() or not (angles > 0.0).all():
        return None
    base = float(np.exp(np.median(-np.log(angles) * config.head_dim / (2.0 * np.arange(1, half)))))
    for value in (float(f"{base:.1g}"), float(f"{base:.2g}"), float(f"{base:.4g}"), base):
        fault = choosing(
            f"theta {value:g}",
            f"{{it}} rotates with theta {value:g}; this model's is {config.rope_theta:g}",
            f"take rope_theta {config.rope_theta:g} from the config",
            ROTATED,
            theta=value,
        )
        error = held.error(point, held.right_at(fault.plant(v), point))
        if error.excess <= 1.0:
            return fault, error
    return None


def eps(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """Another eps of a norm, read off the lengths of its results."""
    if kind(point) not in NORMED:
        return None
    config = held.weights.config
    found, none, counts = _values(held, v.edited(lambda c: replace(c, eps=0.0)), point)
    if found.shape != none.shape:
        return None
    bias = held.weights.read(f"{point}.bias") if config.norm == "layer" else 0.0
    x, y = np.where(counts, none - bias, 0.0), np.where(counts, found - bias, 0.0)
    square = np.sum(x * x, axis=-1)
    with np.errstate(all="ignore"):
        shrunk = np.sum(x * y, axis=-1) / square  # 1 / sqrt(1 + eps / mean square)
    source = _norm_input(held, point)
    if source is None:
        return None
    wide = source - (np.mean(source, axis=-1, keepdims=True) if config.norm == "layer" else 0.0)
    values = (shrunk**-2.0 - 1.0) * np.mean(wide * wide, axis=-1)
    values = values[np.isfinite(values) & (square > 0.0)]
    if not len(values) or not np.median(values) > 0.0:
        return None
    base = float(np.median(values))
    for value in (float(f"{base:.1g}"), float(f"{base:.2g}"), float(f"{base:.4g}")):
        fault = choosing(
            f"eps {value:g}",
            f"{{it}} normalises with eps {value:g}; this model's is {config.norm_eps:g}",
            f"take eps {config.norm_eps:g} from the config",
            NORMED,
            eps=value,
        )
        error = held.error(point, held.right_at(fault.plant(v), point))
        if error.excess <= 1.0:
            return fault, error
    return None


def _norm_input(held: Held, point: str) -> F | None:
    i = block_of(point)
    last = f"blocks.{held.theirs - 1}.residual"
    before = "embed" if i == 0 else f"blocks.{(i or 0) - 1}.residual"
    name = last if i is None else f"blocks.{i}.attn_residual" if kind(point) == "mlp_norm" else before
    return held.trace[name].astype(np.float64) if name in held.trace else None


def window(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """Attention that sees only the last few keys."""
    if kind(point) != "attn.weights":
        return None
    found, right, _ = _values(held, v, point)
    if found.shape != right.shape:
        return None
    t = held.batch.ids.shape[1]
    seen = np.any(found != 0.0, axis=(0, 1))
    widths = [int(q - np.flatnonzero(row)[0]) + 1 for q, row in enumerate(seen) if row.any()]
    width = max(widths, default=t)
    if width >= t or found.shape[-2:] != (t, t):
        return None
    scores = held.trace.get(point.replace("weights", "scores"))
    if scores is None:
        return None
    near = np.arange(t)[:, None] - np.arange(t) < width
    visible = np.tri(t, dtype=bool) & near & held.batch.real[:, None, None, :]
    x = np.where(visible, scores.astype(np.float64), -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        error = held.error(point, e / np.sum(e, axis=-1, keepdims=True))
    says = f"{{it}} lets a token see the last {width} tokens only: a sliding window"
    fault = _given(f"window of {width}", says, "let query i see all keys 0 to i", (point,))
    return (fault, error) if error.excess <= 1.0 else None


def elsewhere(held: Held, v: Variant, point: str) -> tuple[Fault, Error] | None:
    """A matrix of another layer or name, or this one's rows in another order, where a product is wrong."""
    ours = _matrix(held, point)
    if ours is None:
        return None
    found, right, _ = _values(held, v, point)
    if found.shape != right.shape:
        return None
    shapes = parameter_shapes(held.weights.config)
    others = [n for n in shapes if shapes[n] == shapes[ours] and n != ours and n.endswith(".weight")]
    for other in others:

        def change(name: str, x: F, v: Variant, other: str = other) -> F:
            stems = ours.removesuffix("weight"), other.removesuffix("weight")
            return (
                v.weights.read(other if name == ours else name.replace(*stems))
                if name.startswith(stems[0])
                else x
            )

        error = held.error(point, held.right_at(v.edited(lambda c: c, change), point))
        if error.excess <= 1.0:
            mine, its = ours.removesuffix(".weight"), other.removesuffix(".weight")
            fault = changing(
                f"{its} in place of {mine}",
                f"{{its}} {mine} is this model's {its}",
                f"load {ours} from its own entry",
                (kind(point),),
                change,
            )
            return fault, error
    return _reordered(held, point, ours, found, right)


def _reordered(held: Held, point: str, ours: str, found: F, right: F) -> tuple[Fault, Error] | None:
    x, y = (z.reshape(-1, z.shape[-1]).T for z in (right, found))
    if x.shape[1] < 3 or len(x) > MOST_ROWS or not np.isfinite(y).all():
        return None
    apart = np.sum(y * y, axis=1)[:, None] + np.sum(x * x, axis=1) - 2.0 * (y @ x.T)
    rows = np.argmin(apart, axis=1)
    moved = np.flatnonzero(rows != np.arange(len(rows)))
    if len(set(rows.tolist())) < len(rows) or not len(moved):
        return None
    error = held.error(point, right[..., rows])
    if error.excess > 1.0:
        return None
    some = ", ".join(map(str, rows[:8])) + ("..." if len(rows) > 8 else "")
    mine = ours.removesuffix(".weight")
    says = f"{{its}} {mine} has its rows in another order: {some} ({len(moved)} of {len(rows)} moved)"
    return _given(f"{mine} rows reordered", says, "put its rows back in order", (point,)), error


def _matrix(held: Held, point: str) -> str | None:
    """The parameter whose product a point is."""
    names = {point_: ours for ours, point_ in MATRICES.items()}
    if point == "logits":
        return None if held.weights.config.tie_embeddings else "head.weight"
    return f"blocks.{block_of(point)}.{names[kind(point)]}.weight" if kind(point) in names else None


def other_weights(held: Held, v: Variant, point: str) -> Fault | None:
    """Where a product of known inputs is wrong and nothing explains it: its matrix or bias is another."""
    if point == "logits" and held.weights.config.tie_embeddings:
        return _given(
            "head not tied",
            "{its} head is a matrix of its own, neither the embedding nor that shifted or scaled",
            "use the embedding as the head (tie_embeddings is true)",
            (point,),
        )
    name = "embed.weight" if point == "embed" else _matrix(held, point)
    if name is None:
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
