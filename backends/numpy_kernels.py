"""NumPy's kernels: faster forms of functions in ``tinyxp.ops``, with few temporary arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.decoding import InPlaceDecoder
from tinyxp.engine import Engine

LOWEST = {np.dtype(name): float(np.finfo(name).min) for name in ("float32", "float64")}


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.linear``, the bias added in place."""
    y = np.matmul(x, ops.cast(weight, x.dtype, xp=np).T)
    if bias is not None:
        y += ops.cast(bias, x.dtype, xp=np)
    return y


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.layer_norm`` with one temporary array."""
    if x.dtype == np.float16:
        return ops.layer_norm(x, weight, bias, eps, xp=np)
    y = x - np.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]
    y *= _inverse_root(y, eps)
    y *= ops.cast(weight, x.dtype, xp=np)
    y += ops.cast(bias, x.dtype, xp=np)
    return y


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.rms_norm`` with one temporary array."""
    if x.dtype == np.float16:
        return ops.rms_norm(x, weight, eps, xp=np)
    y = x * _inverse_root(x, eps)
    y *= ops.cast(weight, x.dtype, xp=np)
    return y


def _inverse_root(x: np.ndarray, eps: float) -> np.ndarray:
    """1 / sqrt(mean(x^2) + eps), as sqrt(d) / sqrt(sum(x^2) + d eps). (..., d) -> (..., 1)."""
    d = x.shape[-1]
    root = np.vecdot(x, x)[..., None]
    root += d * eps
    np.sqrt(root, root)
    return np.divide(math.sqrt(d), root, root)


def silu(x: np.ndarray, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.silu`` with one temporary array: beyond the largest exponential the result is -0."""
    if x.dtype == np.float16:
        return ops.silu(x, xp=np)
    y = np.negative(x)
    with np.errstate(over="ignore"):
        np.exp(y, out=y)
    y += 1.0
    return np.divide(x, y, out=y)


def gelu_tanh(x: np.ndarray, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.gelu_tanh`` with one temporary array."""
    if x.dtype == np.float16:
        return ops.gelu_tanh(x, xp=np)
    y = x * x
    y *= 0.044715
    y += 1.0
    y *= x
    y *= math.sqrt(2.0 / math.pi)
    np.tanh(y, out=y)
    y += 1.0
    y *= x
    y *= 0.5
    return y


def rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.rotary`` as (a, b) (cos, cos) + (b, a) (-sin, sin), x read as projections leave it."""
    half = x.shape[-1] // 2
    x = x.swapaxes(1, 2)  # (b, t, h, hd)
    cos = np.concatenate((cos, cos), axis=-1, dtype=x.dtype).swapaxes(1, 2)
    sin = np.concatenate((-sin, sin), axis=-1, dtype=x.dtype).swapaxes(1, 2)
    swapped = np.concatenate((x[..., half:], x[..., :half]), axis=-1)
    swapped *= sin
    swapped += x * cos
    return swapped.swapaxes(1, 2)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, visible: np.ndarray, *, xp: Any, tap: ops.Tap = ops.untapped
) -> np.ndarray:
    """``tinyxp.ops.attention`` with one array of scores; not tapped."""
    if q.dtype == np.float16:
        return ops.attention(q, k, v, visible, xp=np)
    b, h, t, hd = q.shape
    g, s = k.shape[1], k.shape[2]
    grouped = (q * (1.0 / math.sqrt(hd))).reshape(b, g, h // g * t, hd)
    scores = np.matmul(grouped, k.swapaxes(-1, -2)).reshape(b, h, t, s)
    if t > 1 or not visible.all():
        np.copyto(scores, -np.inf, where=~visible)
    # If nothing is visible, -inf stays -inf, and the total is 0.
    scores -= np.maximum(np.maximum.reduce(scores, axis=-1, keepdims=True), LOWEST[q.dtype])
    np.exp(scores, scores)
    total = np.add.reduce(scores, axis=-1, keepdims=True)
    heads = np.matmul(scores.reshape(b, g, h // g * t, s), v).reshape(b, h, t, hd)
    heads /= np.maximum(total, 1.0)  # the largest counts exp(0), so that less than 1 means nothing
    return heads


def write_cache(cache: np.ndarray, new: np.ndarray, start: Any, slots: Any, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.write_cache`` in place."""
    at = int(start)
    cache[:, :, at : at + new.shape[2]] = new
    return cache


KERNELS = {
    "linear": linear,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "rotary": rotary,
    "attention": attention,
    "write_cache": write_cache,
}


class NumpyEngine(Engine):
    """Kernels with few temporary arrays, and a cache that is written in place."""

    kernels = KERNELS
    training_kernels = KERNELS
    decoder = InPlaceDecoder
