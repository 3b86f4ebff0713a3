"""JAX's loss without all of its logits: a block of rows at a time, with its gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tinyxp.ops import IGNORED

ROWS = 256


def linear_cross_entropy(
    x: jax.Array,
    weight: jax.Array,
    targets: jax.Array,
    bias: jax.Array | None = None,
    *,
    xp: Any,
    linear: Any = None,
) -> jax.Array:
    """``tinyxp.ops.linear_cross_entropy`` and its gradient in one pass over blocks of rows."""
    if bias is not None:  # one more column of the matrix, multiplied by 1
        x = jnp.concatenate((x, jnp.ones_like(x[..., :1])), -1)
        weight = jnp.concatenate((weight.astype(x.dtype), bias.astype(x.dtype)[:, None]), 1)
    return _loss(x.reshape(-1, x.shape[-1]), weight.astype(x.dtype), targets.reshape(-1))


@jax.custom_vjp
def _loss(x: jax.Array, weight: jax.Array, targets: jax.Array) -> jax.Array:
    return _with_gradient(x, weight, targets, wanted=False)[0]


def _with_gradient(
    x: jax.Array, weight: jax.Array, targets: jax.Array, *, wanted: bool = True
) -> tuple[jax.Array, Any]:
    """x (m, d), weight (n, d), targets (m,) -> the loss (), its gradients (m, d) and (n, d)."""
    m, d = x.shape
    wide = jnp.promote_types(x.dtype, jnp.float32)
    counted = targets != IGNORED
    share = counted.astype(wide) / jnp.maximum(counted.sum(), 1)
    index = jnp.where(counted, targets, 0)

    def rows(dweight: Any, block: Any) -> Any:
        x, index, share = block
        logits = (x @ weight.T).astype(wide)
        logits = logits - logits.max(1, keepdims=True)  # so that small losses keep their digits
        e = jnp.exp(logits)
        sums = e.sum(1)
        chosen = jnp.take_along_axis(logits, index[:, None], 1)[:, 0]
        loss = jnp.where(share > 0, (jnp.log(sums) - chosen) * share, 0.0).sum()
        if not wanted:
            return dweight, (loss, None)
        hit = jnp.arange(e.shape[1]) == index[:, None]
        each = (e * (share / sums)[:, None] - jnp.where(hit, share[:, None], 0.0)).astype(x.dtype)
        return dweight + jnp.matmul(each.T, x, preferred_element_type=wide), (loss, each @ weight)

    size = -(-m // -(-m // ROWS))  # as few blocks as there may be, and of these the smallest
    whole = -(-m // size) * size
    blocks = [
        jnp.pad(part, [(0, whole - m), *[(0, 0)] * (part.ndim - 1)]).reshape(-1, size, *part.shape[1:])
        for part in (x, index, share)
    ]
    dweight, (losses, dx) = jax.lax.scan(rows, jnp.zeros_like(weight, dtype=wide), tuple(blocks))
    if not wanted:
        return losses.sum(), None
    return losses.sum(), (dx.reshape(whole, d)[:m], dweight.astype(weight.dtype))


def _backward(gradients: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    dx, dweight = gradients
    return gradient.astype(dx.dtype) * dx, gradient.astype(dweight.dtype) * dweight, None


_loss.defvjp(_with_gradient, _backward)
