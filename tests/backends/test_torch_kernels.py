"""PyTorch's kernels on both of their paths: with gradients, and in inference mode."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinyxp
from tinyxp import ops

torch = pytest.importorskip("torch")

from tinyxp.backends import torch_kernels as kernels  # noqa: E402  # it needs torch

XP = tinyxp.backend("torch").xp


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_a_large_matrix_takes_another_product_in_inference_mode() -> None:
    """oneDNN's, to rounding the same; with gradients it is torch's own."""
    side = math.isqrt(kernels.LARGE)
    x, weight, bias = normal(1, 2, side), normal(side, side, seed=1), normal(side, seed=2)
    exact = x.double() @ weight.double().T + bias.double()
    plain = kernels.linear(x, weight, bias, xp=XP)
    with torch.inference_mode():
        fast = kernels.linear(x, weight, bias, xp=XP)
    for y in (plain, fast):
        assert (y.double() - exact).abs().max() <= 1e-3
    assert kernels.linear(x.requires_grad_(), weight, bias, xp=XP).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_both_forms_of_rms_norm(dtype: torch.dtype) -> None:
    x, weight = normal(2, 3, 16).to(dtype), normal(16, seed=1).to(dtype)
    expected = ops.rms_norm(x, weight, 1e-5, xp=XP)
    outside = kernels.rms_norm(x, weight, 1e-5, xp=XP)
    with torch.inference_mode():
        inside = kernels.rms_norm(x, weight, 1e-5, xp=XP)
    allowed = 4.0 * torch.finfo(dtype).eps * expected.abs().max()
    for y in (outside, inside):
        assert y.dtype == dtype
        assert (y - expected).abs().max() <= allowed


def test_weights_of_another_dtype_are_cast() -> None:
    x = normal(1, 2, 4).bfloat16()
    y = kernels.linear(x, normal(3, 4, seed=1), normal(3, seed=2), xp=XP)
    assert y.dtype == torch.bfloat16
    assert kernels.layer_norm(x, normal(4, seed=1), normal(4, seed=2), 1e-5, xp=XP).dtype == torch.bfloat16


def test_grouped_heads_are_told_to_the_fused_attention() -> None:
    q, k, v = normal(1, 4, 3, 8), normal(1, 2, 3, 8, seed=1), normal(1, 2, 3, 8, seed=2)
    visible = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    found = kernels.attention(q, k, v, visible, xp=XP)
    assert (found - ops.attention(q, k, v, visible, xp=XP)).abs().max() <= 1e-5
