"""JAX's fused loss: rows that do not divide into blocks, and a bias."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp import ops

jax = pytest.importorskip("jax")

from tinyxp.backends.jax_loss import ROWS, linear_cross_entropy  # noqa: E402  # it needs jax


@pytest.mark.parametrize("rows", [1, ROWS - 1, ROWS + 1])
@pytest.mark.parametrize("biased", [False, True])
def test_rows_that_do_not_divide_into_blocks(rows: int, biased: bool) -> None:
    rng = np.random.default_rng(rows)
    x, weight = rng.normal(size=(1, rows, 6)), rng.normal(size=(7, 6))
    targets = np.where(rng.random((1, rows)) < 0.2, -100, rng.integers(0, 7, (1, rows)))
    targets[0, 0] = 3
    bias = rng.normal(size=7) if biased else None
    arrays = [None if a is None else jax.numpy.asarray(a, jax.numpy.float32) for a in (x, weight, bias)]
    found = jax.jit(lambda x, w, b: linear_cross_entropy(x, w, targets, b, xp=jax.numpy))(*arrays)
    expected = ops.linear_cross_entropy(x, weight, targets, bias, xp=np)
    assert float(found) == pytest.approx(float(expected), abs=1e-5)
