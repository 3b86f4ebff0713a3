"""Gradients of the arithmetic on torch and JAX: differences, extremes, rows that see nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import array, float64_on, host, libraries
from tinyxp import ops

LIBRARIES = libraries("torch", "jax")


def gradients(library: str, f: Callable[..., Any], *xs: np.ndarray) -> list[np.ndarray]:
    """The gradients of the sum of f(*xs, xp=) by each of xs."""
    backend = tinyxp.backend(library)
    there = [array(backend, x) for x in xs]
    if library == "torch":
        for x in there:
            x.requires_grad_()
        f(*there, xp=backend.xp).sum().backward()
        return [host(x.grad) for x in there]
    jax = pytest.importorskip("jax")

    def total(*xs: Any) -> Any:
        return f(*xs, xp=backend.xp).sum()

    return [np.asarray(g) for g in jax.jit(jax.grad(total, argnums=tuple(range(len(xs)))))(*there)]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["softmax", "silu", "gelu", "gelu_tanh", "rms_norm", "layer_norm"])
def test_gradients_are_central_differences(library: str, name: str) -> None:
    """In float64, of the sine of each op's result, so that no gradient is 0 by symmetry."""
    function, weight = getattr(ops, name), np.array([1.0, 0.5, -2.0, 1.5])

    def f(x: Any, *, xp: Any) -> Any:
        w = xp.asarray(weight, dtype=x.dtype)
        extra = {"rms_norm": (w, 1e-5), "layer_norm": (w, w, 1e-5)}.get(name, ())
        return xp.sin(function(x, *extra, xp=xp))

    x = np.random.default_rng(0).normal(size=(2, 4))
    numeric, step = np.zeros_like(x), 1e-6
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        numeric[index] = (f(x + moved, xp=np).sum() - f(x - moved, xp=np).sum()) / (2.0 * step)
    with float64_on(tinyxp.backend(library)):
        (found,) = gradients(library, f, x)
    assert found.dtype == np.float64
    # A difference of two sums of size 1, each rounded at 1e-16, over 2e-6.
    np.testing.assert_allclose(found, numeric, rtol=0.0, atol=2e-9)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("function", [ops.silu, ops.gelu, ops.gelu_tanh])
def test_gradients_at_extremes(library: str, function: Any) -> None:
    values = np.array([-1e4, -1000.0, -89.0, 0.0, 89.0, 1000.0, 1e4], dtype=np.float32)
    (found,) = gradients(library, function, values)
    np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_gradients_past_a_query_that_sees_nothing(library: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    visible = np.array([[[[False] * 3, [True, False, False], [False] * 3]]])

    def f(q: Any, k: Any, v: Any, *, xp: Any) -> Any:
        return ops.attention(q, k, v, array(tinyxp.backend(library), visible), xp=xp) ** 2

    q, k, v = gradients(library, f, *[x.copy() for _ in range(3)])
    # The second query sees one key alone, whose weight is 1 whatever it is: only its value matters.
    assert not q.any()
    assert not k.any()
    np.testing.assert_allclose(v[:, :, 0], 2.0 * x[:, :, 0], rtol=1e-6)
    assert not v[:, :, 1:].any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_cross_entropy_without_a_target_has_no_gradient(library: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3)).astype(np.float32)
    targets = array(tinyxp.backend(library), np.full((1, 2), -100))
    (found,) = gradients(library, lambda x, *, xp: ops.cross_entropy(x, targets, xp=xp), x)
    assert found.tolist() == [[[0.0] * 3] * 2]


@pytest.mark.parametrize("library", LIBRARIES)
def test_cross_entropy_gradient_is_softmax_minus_one_hot(library: str) -> None:
    x = np.array([[[0.0, math.log(3.0)], [0.0, 0.0]]], dtype=np.float32)
    targets = array(tinyxp.backend(library), np.array([[0, 1]]))
    (found,) = gradients(library, lambda x, *, xp: ops.cross_entropy(x, targets, xp=xp), x)
    np.testing.assert_allclose(found, [[[-0.375, 0.375], [0.25, -0.25]]], rtol=0.0, atol=1e-6)
