"""PyTorch's fused loss: where it gives way to the pure one, and what it refuses to differentiate."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tinyxp import ops

torch = pytest.importorskip("torch")

from tinyxp.backends.torch_int8 import round_matrix  # noqa: E402  # it needs torch
from tinyxp.backends.torch_loss import ROWS, linear_cross_entropy  # noqa: E402

XP = tinyxp.backend("torch").xp
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(2, ROWS + 3, 16)))
WEIGHT, BIAS = torch.from_numpy(RNG.normal(size=(9, 16))), torch.from_numpy(RNG.normal(size=9))
TARGETS = torch.from_numpy(RNG.integers(0, 9, X.shape[:2]))


def test_more_rows_than_one_block_and_a_bias() -> None:
    for bias in (None, BIAS):
        found = linear_cross_entropy(X, WEIGHT, TARGETS, bias, xp=XP)
        assert abs(float(found - ops.linear_cross_entropy(X, WEIGHT, TARGETS, bias, xp=XP))) <= 1e-12


def test_a_head_of_eight_bits_takes_the_pure_loss() -> None:
    calls = []

    def linear(*args: object, **kwargs: object) -> object:
        calls.append(args)
        return ops.linear(X, WEIGHT, xp=XP)

    found = linear_cross_entropy(X, round_matrix(WEIGHT.float()), TARGETS, xp=XP, linear=linear)
    assert len(calls) == 1
    assert abs(float(found - ops.linear_cross_entropy(X, WEIGHT, TARGETS, xp=XP))) <= 1e-12


def test_second_derivatives_are_rejected() -> None:
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(linear_cross_entropy(x, WEIGHT, TARGETS, xp=XP), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives"):
        torch.autograd.grad(first.sum(), x)
