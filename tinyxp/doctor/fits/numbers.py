"""Numbers read off: the base of the rotary frequencies, eps, constant factors, dropout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyxp.doctor.choices import F
from tinyxp.doctor.faults.norms import NORMED
from tinyxp.doctor.faults.positions import ROTATED
from tinyxp.doctor.faults.record import choosing
from tinyxp.doctor.fits.values import Fit, given, tried, values
from tinyxp.doctor.held import Held
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.variant import Variant

DROPPED = ("embed", "attn.weights", "attn.heads", "attn.out", "mlp.hidden", "mlp.out")
"""Where models drop out."""


def dropout(held: Held, v: Variant, point: str) -> Fit | None:
    """Numbers set to 0 at random and the others divided by the share that is left."""
    if kind(point) not in DROPPED:
        return None
    found, right, counts = values(held, v, point)
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
    if (
        ratio < 1.001
        or np.all(gone, axis=tuple(range(gone.ndim - 1))).any()
        or abs(1.0 - 1.0 / ratio - share) > 5.0 * np.sqrt(share * (1.0 - share) / number) + 1e-3
    ):
        return None
    error = held.error(point, np.where(found == 0.0, 0.0, right * ratio))
    if error.excess > 1.0:
        return None
    p = 1.0 - 1.0 / ratio
    says = (
        f"{{it}} runs with dropout on: {share:.1%} of {kind(point)} is 0 "
        f"and the rest is multiplied by {ratio:.4g} (p = {p:.2g})"
    )
    return given("dropout", says, "switch to evaluation: model.eval() in torch", (point,)), error


def factor(held: Held, v: Variant, point: str) -> Fit | None:
    """The right value times one number."""
    found, right, counts = values(held, v, point)
    if found.shape != right.shape or not np.isfinite(found[np.broadcast_to(counts, found.shape)]).all():
        return None
    x, y = np.where(counts, right, 0.0), np.where(counts, found, 0.0)
    square = float(np.vdot(x, x))
    if square == 0.0:
        return None
    times = float(np.vdot(x, y)) / square
    error = held.error(point, right * times)
    if error.excess > 1.0 or times == 0.0 or abs(times - 1.0) < 1e-3:
        return None
    says = f"{{its}} {kind(point)} is {times:.6g} times what it should be"
    return given(
        f"{kind(point)} times {times:.4g}",
        says,
        "look for a scale that is applied twice, or not at all",
        (point,),
    ), error


def theta(held: Held, v: Variant, point: str) -> Fit | None:
    """Another base of the rotary frequencies, read off the angles at position 1."""
    name, config = point.removesuffix("_rotated"), held.weights.config
    if not kind(point).endswith("_rotated") or name not in held.trace or config.rope_scaling is not None:
        return None
    (found, right, _), half = values(held, v, point), config.head_dim // 2
    if found.shape != right.shape:
        return None
    b, heads, t, hd = found.shape
    before = held.trace[name].astype(np.float64).reshape(b, t, heads, hd).swapaxes(1, 2)
    if held.batch.mask is not None or t < 2 or half < 2:  # column 1 is to be position 1
        return None
    x, y = (z[:, :, 1, :half] + 1j * z[:, :, 1, half:] for z in (before, found))
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
        if (fit := tried(held, v, fault, point)) is not None:
            return fit
    return None


def eps(held: Held, v: Variant, point: str) -> Fit | None:
    """Another eps of a norm, read off the lengths of its results."""
    if kind(point) not in NORMED:
        return None
    config = held.weights.config
    found, none, counts = values(held, v.edited(lambda c: replace(c, eps=0.0)), point)
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
    sizes = (shrunk**-2.0 - 1.0) * np.mean(wide * wide, axis=-1)
    sizes = sizes[np.isfinite(sizes) & (square > 0.0)]
    if not len(sizes) or not np.median(sizes) > 0.0:
        return None
    base = float(np.median(sizes))
    for value in (float(f"{base:.1g}"), float(f"{base:.2g}"), float(f"{base:.4g}")):
        fault = choosing(
            f"eps {value:g}",
            f"{{it}} normalises with eps {value:g}; this model's is {config.norm_eps:g}",
            f"take eps {config.norm_eps:g} from the config",
            NORMED,
            eps=value,
        )
        if (fit := tried(held, v, fault, point)) is not None:
            return fit
    return None


def _norm_input(held: Held, point: str) -> F | None:
    i = block_of(point)
    last = f"blocks.{held.theirs - 1}.residual"
    before = "embed" if i == 0 else f"blocks.{(i or 0) - 1}.residual"
    name = last if i is None else f"blocks.{i}.attn_residual" if kind(point) == "mlp_norm" else before
    return held.trace[name].astype(np.float64) if name in held.trace else None


BRANCHES = {
    "attn_residual": ("attention", "attn.out"),
    "residual": ("the MLP", "mlp.out"),
}


def branch(held: Held, v: Variant, point: str) -> Fit | None:
    """A residual whose branch, or whose stream, is multiplied by a constant."""
    if kind(point) not in BRANCHES:
        return None
    words, added = BRANCHES[kind(point)]
    out = held.trace.get(f"blocks.{block_of(point)}.{added}")
    found, right, counts = values(held, v, point)
    if out is None or found.shape != right.shape or not np.isfinite(found).all():
        return None
    b = np.where(counts, out.astype(np.float64), 0.0)
    x = np.where(counts, right, 0.0) - b
    y = np.where(counts, found, 0.0)
    (stream, times), *_ = np.linalg.lstsq(np.stack([x.ravel(), b.ravel()], axis=1), y.ravel(), rcond=None)
    error = held.error(point, stream * x + times * b)
    if error.excess > 1.0 or (abs(stream - 1.0) < 1e-3 and abs(times - 1.0) < 1e-3):
        return None
    says = f"{{it}} computes {stream:.4g} x + {times:.4g} f(x) around {words}; it is x + f(x)"
    return given(
        f"residual around {words} scaled", says, "add the branch to the stream as it is", (point,)
    ), error
