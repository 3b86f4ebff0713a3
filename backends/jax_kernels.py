"""JAX's kernels: linear maps, attention by blocks of slots, and writing into a cache of stacked layers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tinyxp import ops


class Layer(NamedTuple):
    """One layer's part of a stacked cache, of which nothing is copied but what is read."""

    stack: jax.Array  # (L, b, g, s, hd)
    index: jax.Array  # ()


def linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, xp: Any) -> jax.Array:
    """``tinyxp.ops.linear``, a single row kept apart: XLA would compute it again for each output."""
    alone = math.prod(x.shape[:-1]) == 1
    return ops.linear(_kept_apart(x) if alone else x, weight, bias, xp=jnp)


def _kept_apart(x: jax.Array) -> jax.Array:
    """x, as the larger of itself and -inf, by an operation that XLA does not fuse into what follows."""
    pairs = jnp.stack((x, jnp.full_like(x, -jnp.inf)), axis=-1)
    window = (*(1 for _ in x.shape), 2)
    return jax.lax.reduce_window(pairs, -jnp.inf, jax.lax.max, window, window, "VALID")[..., 0]


def write_cache(cache: Any, new: jax.Array, start: Any, slots: Any, *, xp: Any) -> Any:
    """``tinyxp.ops.write_cache``, in place if XLA can: new must fit between start and the last slot."""
    if not isinstance(cache, Layer):
        return jax.lax.dynamic_update_slice_in_dim(cache, new, start, axis=2)
    zero = jnp.zeros_like(start)
    stack = jax.lax.dynamic_update_slice(
        cache.stack, new[None], (cache.index.astype(zero.dtype), zero, zero, start, zero)
    )
    return Layer(stack, cache.index)


def _slots(cache: Any, start: Any, size: int) -> jax.Array:
    """``size`` slots of a cache, from ``start`` on. (b, g, s, hd) or a Layer -> (b, g, size, hd)."""
    if not isinstance(cache, Layer):
        return jax.lax.dynamic_slice_in_dim(cache, start, size, axis=2)
    _, b, g, _, hd = cache.stack.shape
    return jax.lax.dynamic_slice(cache.stack, (cache.index, 0, 0, start, 0), (1, b, g, size, hd))[0]


BLOCK = 256
"""Slots of a long cache that are attended to at a time."""


def attention(q: jax.Array, k: Any, v: Any, visible: jax.Array, *, xp: Any, tap: Any = None) -> jax.Array:
    """``tinyxp.ops.attention`` in float32 at least, not tapped. Of a cache longer than a block only the
    blocks up to the last visible slot are read, and softmax is summed as they come (Milakov & Gimelshein,
    2018).
    """
    b, h, t, hd = q.shape
    keys = k.stack[0] if isinstance(k, Layer) else k
    g, s = keys.shape[1], visible.shape[3]
    wide = jnp.result_type(q.dtype, jnp.float32)
    scaled = (q.astype(wide) * (1.0 / math.sqrt(hd))).reshape(b, g, h // g, t, hd)
    visible = visible[:, :, None]  # (b or 1, 1, 1, t, s)
    size = BLOCK if t < s and s % BLOCK == 0 else s

    def attend(i: Any, state: Any) -> Any:
        top, total, heads = state
        start = i * size
        seen = jax.lax.dynamic_slice_in_dim(visible, start, size, axis=4)
        scores = jnp.where(seen, _scores(scaled, _slots(k, start, size).astype(wide)), -jnp.inf)
        higher = jnp.maximum(top, scores.max(-1, keepdims=True))
        e, kept = jnp.exp(scores - higher), jnp.exp(top - higher)
        more = _heads(e, _slots(v, start, size).astype(wide))
        return higher, total * kept + e.sum(-1, keepdims=True), heads * kept + more

    nothing = jnp.zeros((b, g, h // g, t, 1), wide)
    state = nothing + jnp.finfo(wide).min, nothing, jnp.zeros(scaled.shape, wide)
    if size == s:
        state = attend(0, state)
    else:
        used = jnp.where(visible.any((0, 1, 2, 3)), jnp.arange(s) + 1, 0).max()
        state = jax.lax.fori_loop(0, (used + size - 1) // size, attend, state)
    _, total, heads = state
    heads = heads / jnp.maximum(total, 1.0)  # the largest counts exp(0), so that less than 1 means nothing
    return heads.reshape(b, h, t, hd).astype(q.dtype)


def _scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """q (b, g, r, t, hd), k (b, g, s, hd) -> (b, g, r, t, s). For one query XLA's loops beat its products."""
    if q.shape[3] == 1:
        return jnp.sum(q * k[:, :, None], -1)[..., None, :]
    b, g, r, t, hd = q.shape
    return jnp.matmul(q.reshape(b, g, r * t, hd), k.mT).reshape(b, g, r, t, k.shape[2])


def _heads(weights: jax.Array, v: jax.Array) -> jax.Array:
    """weights (b, g, r, t, s), v (b, g, s, hd) -> (b, g, r, t, hd)."""
    b, g, r, t, s = weights.shape
    if t == 1:
        return jnp.sum(weights[..., 0, :, None] * v[:, :, None], -2)[..., None, :]
    return jnp.matmul(weights.reshape(b, g, r * t, s), v).reshape(b, g, r, t, v.shape[3])


def reference_softmax(
    x: jax.Array, *, xp: Any, visible: jax.Array | None = None, axis: int = -1
) -> jax.Array:
    """``tinyxp.ops.softmax``, JAX's own."""
    return jax.nn.softmax(x, axis=axis, where=visible)


def reference_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array, *, xp: Any, tap: Any = None
) -> jax.Array:
    """``tinyxp.ops.attention``, JAX's own, for queries that see something."""
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    mask = jnp.broadcast_to(visible, (q.shape[0], 1, q.shape[1], k.shape[1]))
    return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, mask=mask), 1, 2)


reference_attention.precision = "float32"  # of its softmax, for any dtype
