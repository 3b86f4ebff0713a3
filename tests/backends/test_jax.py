"""JAX: jit, gradients and vmap take the model and its parameters as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference import IDS, LLAMA_CONFIG, distance, drawn, filled
from tinyxp import Config, Params, extend, forward, loss, new_cache

from .gradients import MASK, TARGETS, check_gradient

jax = pytest.importorskip("jax")


def test_jit(config: Config) -> None:
    expected = forward(filled(config), IDS)
    there = filled(config).to(jax.numpy, dtype="float32")
    ids = np.asarray(IDS)
    for params in (there, filled(config).to(dtype="float32")):  # leaves of NumPy are taken too
        logits = jax.jit(forward)(params, ids)
        assert isinstance(logits, jax.Array)
        assert distance(logits, expected) <= 1e-5


def test_jit_with_xp_bound_and_everything_traced() -> None:
    params = filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32")

    @jax.jit
    def run(params: Params, ids: Any, positions: Any, mask: Any) -> Any:
        return forward(params, ids, positions=positions, mask=mask, xp=jax.numpy)

    positions = np.asarray([[0, 0, 1, 2, 5]])
    found = run(params, np.asarray(IDS), positions, np.asarray(MASK))
    expected = forward(filled(LLAMA_CONFIG), IDS, positions=positions, mask=MASK)
    assert distance(np.asarray(found)[:, 1:], expected[:, 1:]) <= 1e-5


def test_grad(config: Config) -> None:
    params = filled(config).to(jax.numpy, dtype="float32")
    value, grads = jax.jit(jax.value_and_grad(loss))(
        params, np.asarray(IDS), np.asarray(TARGETS), mask=np.asarray(MASK)
    )
    assert float(value) == pytest.approx(float(loss(filled(config), IDS, TARGETS, mask=MASK)), abs=2e-6)
    check_gradient(grads, filled(config), 1e-5)


def test_vmap() -> None:
    params = filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32")
    ids = np.asarray([[IDS[0]], [[9, 2, 6, 5, 3]]])
    found = jax.jit(jax.vmap(forward, in_axes=(None, 0)))(params, ids)
    for one, row in zip(np.asarray(found), ids, strict=True):
        assert distance(one, forward(filled(LLAMA_CONFIG), row)) <= 1e-5


def test_vmap_over_models() -> None:
    """Two models of one config, stacked leaf by leaf."""
    models = [filled(LLAMA_CONFIG).to(jax.numpy, dtype="float32"), drawn(LLAMA_CONFIG).to(jax.numpy)]
    stacked = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *models)
    found = jax.jit(jax.vmap(forward, in_axes=(0, None)))(stacked, np.asarray(IDS))
    for one, params in zip(np.asarray(found), models, strict=True):
        assert distance(one, forward(params.to(np), IDS)) <= 1e-5


def test_extend_under_jit(config: Config) -> None:
    params = filled(config).to(jax.numpy, dtype="float32")
    step = jax.jit(extend)
    logits, cache = step(
        params, np.asarray([IDS[0][:3]]), new_cache(params, 1, 8), mask=np.asarray([MASK[0][:3]])
    )
    more, _ = step(params, np.asarray([IDS[0][3:]]), cache)
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(np.concatenate([logits, more], axis=1)[:, 1:], expected[:, 1:]) <= 1e-5


def test_eval_shape() -> None:
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    spec = jax.eval_shape(forward, params, jax.ShapeDtypeStruct((2, 7), jax.numpy.int32))
    assert spec.shape == (2, 7, 11)
    assert spec.dtype == jax.numpy.float32


def test_arrays_closed_over_in_a_trace_are_checked_and_used() -> None:
    jnp = jax.numpy
    params, ids, targets = drawn(LLAMA_CONFIG).to(jnp), jnp.asarray(IDS), jnp.asarray(TARGETS)
    mask, positions = jnp.ones((1, 5), dtype=jnp.int32), jnp.arange(5)[None]
    traced = jax.jit(lambda p: loss(p, ids, targets, mask=mask, positions=positions))
    assert float(traced(params)) == pytest.approx(float(loss(params, ids, targets)), rel=1e-6)
    outside = jnp.asarray([[11]])
    with pytest.raises(ValueError, match="ids holds 11"):
        jax.jit(lambda p: forward(p, outside))(params)


def test_gradients_of_numpy_parameters_combine_with_them() -> None:
    params = drawn(LLAMA_CONFIG)
    gradient = jax.grad(loss)(params, np.asarray(IDS), np.asarray(TARGETS))
    stepped = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    assert isinstance(stepped, Params)
    assert stepped.backend.name == "jax"
    assert float(loss(stepped, IDS, TARGETS)) < float(loss(params, IDS, TARGETS))
