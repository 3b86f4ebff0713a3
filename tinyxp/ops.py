"""The arithmetic of a decoder: pure functions of arrays, in the Python array API standard alone.

Every function takes its namespace as ``xp`` and returns the dtype of its first argument unless its docstring
says otherwise. The letters of shapes are those of ``model.py``. An engine may bring faster kernels for the
functions in ``Kernels``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxp.typing import Array, Namespace, Tap

IGNORED = -100
"""The target that ``cross_entropy`` leaves out."""


def cast(x: Array, dtype: Any, *, xp: Namespace) -> Array:
    """Return x in ``dtype``; x itself if it has that dtype already."""
    return x if x.dtype == dtype else xp.astype(x, dtype)


def widen(x: Array, *, xp: Namespace) -> Array:
    """Return x in float32, or in its own dtype if that is wider, for sums, exponentials and norms."""
    return cast(x, xp.result_type(x.dtype, xp.float32), xp=xp)


def untapped(name: str, x: Array, /) -> Array:
    """Return x: the tap that does nothing."""
    return x


def linear(x: Array, weight: Array, bias: Array | None = None, *, xp: Namespace) -> Array:
    """x W^T + b. x (..., i), weight (o, i), bias (o,) -> (..., o)."""
    y: Array = xp.matmul(x, xp.matrix_transpose(cast(weight, x.dtype, xp=xp)))
    return y if bias is None else y + cast(bias, x.dtype, xp=xp)


def project(
    x: Array,
    weights: Mapping[str, Array],
    names: Sequence[str],
    *,
    xp: Namespace,
    linear: Callable[..., Array] = linear,
) -> list[Array]:
    """x W^T + b for each of several linear maps of one input, given one block's parameters and their names.

    x (..., i) -> (..., o) for each name, with its ``.weight`` (o, i) and, if there is one, ``.bias`` (o,).
    """
    return [linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"), xp=xp) for name in names]


def layer_norm(x: Array, weight: Array, bias: Array, eps: float, *, xp: Namespace) -> Array:
    """(x - mean) / sqrt(var + eps) * w + b over the last axis; var divides by d, not by d - 1.

    x (..., d), weight and bias (d,) -> (..., d). Computed in float32 at least (Ba et al., 2016).
    """
    wide = widen(x, xp=xp)
    centred = wide - xp.mean(wide, axis=-1, keepdims=True)
    scale = (xp.mean(centred * centred, axis=-1, keepdims=True) + eps) ** -0.5
    y = centred * scale * cast(weight, wide.dtype, xp=xp) + cast(bias, wide.dtype, xp=xp)
    return cast(y, x.dtype, xp=xp)


def rms_norm(x: Array, weight: Array, eps: float, *, xp: Namespace) -> Array:
    """x / sqrt(mean(x^2) + eps) * w over the last axis. x (..., d), weight (d,) -> (..., d).

    Normalised in float32 at least, rounded to x's dtype, then scaled: Llama's order (Zhang & Sennrich, 2019).
    """
    wide = widen(x, xp=xp)
    scale = (xp.mean(wide * wide, axis=-1, keepdims=True) + eps) ** -0.5
    return cast(wide * scale, x.dtype, xp=xp) * cast(weight, x.dtype, xp=xp)


def softmax(x: Array, *, xp: Namespace, visible: Array | None = None, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along ``axis``, in float32 at least; x may reach half of the largest float.

    The result is exactly 0 for entries that ``visible`` (bool, broadcastable to x) excludes. A row without
    a visible entry is zeros, and so is its gradient.
    """
    wide = widen(x, xp=xp)
    if visible is not None:
        wide = xp.where(visible, wide, -math.inf)
    top = xp.max(wide, axis=axis, keepdims=True)
    e = xp.exp(wide - xp.where(top > -math.inf, top, 0.0))
    total = xp.sum(e, axis=axis, keepdims=True)
    return cast(e / xp.where(total > 0.0, total, 1.0), x.dtype, xp=xp)


def silu(x: Array, *, xp: Namespace) -> Array:
    """x / (1 + exp(-x)), elementwise, without overflow on either side (Elfwing et al., 2017)."""
    wide = widen(x, xp=xp)
    e = xp.exp(-xp.abs(wide))
    return cast(wide * xp.where(wide >= 0.0, 1.0, e) / (1.0 + e), x.dtype, xp=xp)


def gelu_tanh(x: Array, *, xp: Namespace) -> Array:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise: GPT-2's GELU (Hendrycks & Gimpel, 2016)."""
    wide = widen(x, xp=xp)
    inner = math.sqrt(2.0 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return cast(0.5 * wide * (1.0 + xp.tanh(inner)), x.dtype, xp=xp)


def gelu(x: Array, *, xp: Namespace) -> Array:
    """x/2 (1 + erf(x / sqrt(2))), elementwise: the exact GELU (Hendrycks & Gimpel, 2016)."""
    wide = widen(x, xp=xp)
    return cast(0.5 * wide * (1.0 + erf(wide * math.sqrt(0.5), xp=xp)), x.dtype, xp=xp)


def relu2(x: Array, *, xp: Namespace) -> Array:
    """max(x, 0)^2, elementwise (So et al., 2021)."""
    positive = xp.where(x < 0.0, 0.0, x)  # NaN stays NaN
    squared: Array = positive * positive
    return squared


def erf(x: Array, *, xp: Namespace) -> Array:
    """2/sqrt(pi) times the integral of exp(-u^2) from 0 to x, elementwise, within 3e-15.

    The standard has no erf, so it is integrated by Gauss-Legendre on [0, x] with 24 nodes. Beyond 6 it is 1
    to the last digit of float64.
    """
    near = (x > -6.0) & (x < 6.0)
    held = xp.where(near, x, 0.0)
    squared, total = held * held, 0.0 * held
    for node, weight in _GAUSS_LEGENDRE:
        total = total + weight * xp.exp(-(node * node) * squared)
    integral: Array = xp.where(near, total * held * (2.0 / math.sqrt(math.pi)), xp.sign(x))
    return integral


_GAUSS_LEGENDRE = tuple(
    ((1.0 + float(node)) / 2.0, float(weight) / 2.0)
    for node, weight in zip(*np.polynomial.legendre.leggauss(24), strict=True)
)


def rotary(x: Array, cos: Array, sin: Array, *, xp: Namespace) -> Array:
    """Rotates the pair (x[i], x[i + hd/2]) by the angle that cos and sin belong to, for each i < hd/2.

    x (b, h, t, hd); cos and sin (b or 1, 1, t, hd/2) in float32 at least, cast to x's dtype last.
    RoPE with half pairing, as Llama's Hugging Face weights want it (Su et al., 2021).
    """
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cast(cos, x.dtype, xp=xp), cast(sin, x.dtype, xp=xp)
    rotated: Array = xp.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return rotated


def attention(q: Array, k: Array, v: Array, visible: Array, *, xp: Namespace, tap: Tap = untapped) -> Array:
    """softmax(q k^T / sqrt(hd)) v over the visible keys; query head i reads key/value head i // (h / g).

    q (b, h, t, hd), k and v (b, g, s, hd), visible (b or 1, 1, t, s) bool -> (b, h, t, hd). A query that sees
    nothing gets zeros. Taps ``scores`` (scaled, before the mask) and ``weights``, both (b, h, t, s).
    (Vaswani et al., 2017; grouped heads: Ainslie et al., 2023.)
    """
    b, h, t, hd = q.shape
    g, s = k.shape[1], k.shape[2]
    grouped = xp.reshape(q, (b, g, h // g * t, hd))  # queries that share a key head in one matrix
    product = xp.matmul(widen(grouped, xp=xp), xp.matrix_transpose(widen(k, xp=xp)))
    scores = cast(xp.reshape(product, (b, h, t, s)) * (1.0 / math.sqrt(hd)), q.dtype, xp=xp)
    scores = tap("scores", scores)
    weights = tap("weights", softmax(scores, visible=visible, xp=xp))
    heads = xp.matmul(xp.reshape(weights, (b, g, h // g * t, s)), v)
    return cast(xp.reshape(heads, (b, h, t, hd)), q.dtype, xp=xp)


def write_cache(cache: Array, new: Array, start: Array | int, slots: Array, *, xp: Namespace) -> Array:
    """A copy of ``cache`` with ``new`` in the slots from ``start`` on; ``start`` may be traced.

    cache (b, g, s, hd), new (b, g, t, hd), slots (s,) the numbers 0 to s - 1 -> (b, g, s, hd).
    """
    source = slots - start  # (s,): the row of new that belongs in each slot
    inside = (source >= 0) & (source < new.shape[2])
    spread = xp.take(new, xp.where(inside, source, 0), axis=2)
    written: Array = xp.where(inside[:, None], spread, cache)
    return written


def cross_entropy(logits: Array, targets: Array, *, xp: Namespace) -> Array:
    """Mean of logsumexp(l) - l[target], in nats, over the targets that are not -100; 0 if there is none.

    logits (b, t, n), targets (b, t) integers -> () in float32 at least.
    """
    wide = widen(logits, xp=xp)
    counted = xp.not_equal(targets, IGNORED)
    below_top = wide - xp.max(wide, axis=-1, keepdims=True)  # so that small losses keep their digits
    index = xp.where(counted, targets, 0)[..., None]
    chosen = xp.take_along_axis(below_top, index, axis=-1)[..., 0]
    losses = xp.where(counted, xp.log(xp.sum(xp.exp(below_top), axis=-1)) - chosen, 0.0)
    count = xp.sum(xp.astype(counted, wide.dtype))
    mean: Array = xp.sum(losses) / xp.where(count > 0.0, count, 1.0)
    return mean


def linear_cross_entropy(
    x: Array,
    weight: Array,
    targets: Array,
    bias: Array | None = None,
    *,
    xp: Namespace,
    linear: Callable[..., Array] = linear,
) -> Array:
    """``cross_entropy`` of the logits x W^T + b, which a faster kernel need not hold all at once.

    x (b, t, d), weight (n, d), targets (b, t) integers, bias (n,) -> () in float32 at least.
    """
    return cross_entropy(linear(x, weight, bias, xp=xp), targets, xp=xp)


class Kernels(NamedTuple):
    """The functions that an engine or a caller may replace, each by one of the same signature."""

    linear: Callable[..., Array] = linear
    project: Callable[..., list[Array]] = project
    layer_norm: Callable[..., Array] = layer_norm
    rms_norm: Callable[..., Array] = rms_norm
    silu: Callable[..., Array] = silu
    gelu_tanh: Callable[..., Array] = gelu_tanh
    gelu: Callable[..., Array] = gelu
    relu2: Callable[..., Array] = relu2
    rotary: Callable[..., Array] = rotary
    attention: Callable[..., Array] = attention
    write_cache: Callable[..., Array] = write_cache
    linear_cross_entropy: Callable[..., Array] = linear_cross_entropy
