"""linear_cross_entropy of the backends: the value and the gradients of the pure one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import ops

rng = np.random.default_rng(0)
M, D, N = 300, 6, 37
X, WEIGHT = rng.normal(size=(2, M // 2, D)), rng.normal(size=(N, D))
TARGETS = rng.integers(0, N, (2, M // 2))
TARGETS[0, 3:50] = -100


def both(library: str, dtype: str, targets: np.ndarray, f: Any) -> list[np.ndarray]:
    """The loss and its gradients with respect to x and weight."""
    pytest.importorskip(library)
    backend = tinyxp.backend(library)
    with backend.float64():
        x, weight = (backend.from_numpy(a, dtype=dtype) for a in (X, WEIGHT))
        there = backend.from_numpy(targets.astype(backend.index_dtype))

        def loss(pair: Any) -> Any:
            return f(pair[0], pair[1], there, xp=backend.xp)

        value, gradients = backend.value_and_grad(loss)((x, weight))
        return [np.asarray(backend.to_numpy(a), dtype=np.float64) for a in (value, *gradients)]


@pytest.mark.parametrize("dtype, close", [("float64", 1e-12), ("float32", 2e-6), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_value_and_gradients_are_those_of_the_pure_one(library: str, dtype: str, close: float) -> None:
    kernel = tinyxp.backend(library).kernels["linear_cross_entropy"]
    found = both(library, dtype, TARGETS, kernel)
    expected = both(library, "float64", TARGETS, ops.linear_cross_entropy)
    for ours, pure in zip(found, expected, strict=True):
        assert np.abs(ours - pure).max() <= close * np.abs(pure).max()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_without_a_target_loss_and_gradients_are_zero(library: str) -> None:
    kernel = tinyxp.backend(library).kernels["linear_cross_entropy"]
    for found in both(library, "float32", np.full_like(TARGETS, -100), kernel):
        assert not found.any()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_small_losses_keep_their_digits(library: str) -> None:
    pytest.importorskip(library)
    backend = tinyxp.backend(library)
    x = backend.from_numpy(np.full((1, 1, 1), 16.0), dtype="float32")
    weight = backend.from_numpy(np.array([[1.0], [0.0]]), dtype="float32")
    target = backend.from_numpy(np.zeros((1, 1), dtype=backend.index_dtype))
    with backend.inference():
        found = backend.kernels["linear_cross_entropy"](x, weight, target, xp=backend.xp)
    assert float(found) == pytest.approx(np.log1p(np.exp(-16.0)), rel=0.1)


def test_torch_computes_no_gradient_where_none_is_wanted() -> None:
    torch = pytest.importorskip("torch")
    kernel = tinyxp.backend("torch").kernels["linear_cross_entropy"]
    x, weight, targets = torch.tensor(X), torch.tensor(WEIGHT, requires_grad=True), torch.tensor(TARGETS)
    whole = kernel(x, weight, targets, xp=None)
    whole.backward()
    assert weight.grad is not None
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert float(kernel(x, weight, targets, xp=None)) == float(whole)
