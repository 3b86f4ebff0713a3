"""JAX's kernels: attention by blocks of slots, a layer of a stacked cache, a single row."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp import ops

jax = pytest.importorskip("jax")
jnp = jax.numpy

from tinyxp.backends import jax_kernels as kernels  # noqa: E402  # it needs jax


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("used", [1, 255, 256, 257, 600])
def test_attention_by_blocks_reads_up_to_the_last_visible_slot(used: int) -> None:
    slots = 3 * kernels.BLOCK
    q, k, v = normal(2, 4, 1, 8), normal(2, 2, slots, 8, seed=1), normal(2, 2, slots, 8, seed=2)
    visible = np.broadcast_to(np.arange(slots) < used, (2, 1, 1, slots)).copy()
    visible[1, 0, 0, 0] = False  # a padded row, which may see nothing at all
    unused = jnp.where(jnp.arange(slots)[:, None] < kernels.BLOCK * -(-used // kernels.BLOCK), k, jnp.nan)
    found = jax.jit(lambda *x: kernels.attention(*x, xp=jnp))(q, unused, v, visible)
    expected = ops.attention(*map(np.asarray, (q, k, v)), visible, xp=np)
    assert np.abs(np.asarray(found) - expected).max() <= 1e-5


def test_a_layer_of_a_stacked_cache_is_read_and_written_alone() -> None:
    stack, new = normal(3, 1, 2, 8, 4), normal(1, 2, 2, 4, seed=1)
    layer = kernels.Layer(stack, jnp.asarray(1))
    written = kernels.write_cache(layer, new, jnp.asarray(5), None, xp=jnp)
    expected = np.asarray(stack).copy()
    expected[1, :, :, 5:7] = new
    assert np.array_equal(np.asarray(written.stack), expected)
    assert int(written.index) == 1
    q, visible = normal(1, 4, 2, 4, seed=2), np.tril(np.ones((2, 8), bool), 6)[None, None]
    found = kernels.attention(q, written, written, visible, xp=jnp)
    own = expected[1]
    assert np.abs(np.asarray(found) - ops.attention(np.asarray(q), own, own, visible, xp=np)).max() <= 1e-5


def test_a_single_row_kept_apart_is_the_same_row() -> None:
    x, weight, bias = normal(1, 1, 6), normal(5, 6, seed=1), normal(5, seed=2)
    found = kernels.linear(x, weight, bias, xp=jnp)
    assert np.abs(np.asarray(found) - np.asarray(x) @ np.asarray(weight).T - np.asarray(bias)).max() <= 1e-5
