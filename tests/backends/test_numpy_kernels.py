"""NumPy's kernels at their edges: overflow, rows that see nothing, half precision, memory."""

from __future__ import annotations

import numpy as np
import pytest
from tinyxp.backends import numpy_kernels as kernels

from tinyxp import ops

RNG = np.random.default_rng(0)


def test_silu_of_large_numbers_neither_warns_nor_overflows() -> None:
    x = np.asarray([-1e30, -200.0, -1.0, 0.0, 200.0, 1e30], np.float32)
    with np.errstate(all="raise", under="ignore"):
        y = kernels.silu(x, xp=np)
    np.testing.assert_allclose(y, ops.silu(x, xp=np), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_query_that_sees_nothing_gets_zeros(dtype: str) -> None:
    q, k, v = (RNG.normal(size=(1, 2, 3, 4)).astype(dtype) for _ in range(3))
    visible = np.asarray([[[[True, True, False], [False, False, False], [True, True, True]]]])
    found = kernels.attention(q, k, v, visible, xp=np)
    assert not found[:, :, 1].any()
    np.testing.assert_allclose(found, ops.attention(q, k, v, visible, xp=np), rtol=0.0, atol=1e-6)


def test_half_precision_is_the_pure_function_s() -> None:
    x = RNG.normal(size=(2, 5)).astype(np.float16)
    weight, bias = np.ones(5, np.float16), np.zeros(5, np.float16)
    assert np.array_equal(kernels.rms_norm(x, weight, 1e-5, xp=np), ops.rms_norm(x, weight, 1e-5, xp=np))
    assert np.array_equal(
        kernels.layer_norm(x, weight, bias, 1e-5, xp=np), ops.layer_norm(x, weight, bias, 1e-5, xp=np)
    )
    for name in ("silu", "gelu_tanh"):
        assert np.array_equal(getattr(kernels, name)(x, xp=np), getattr(ops, name)(x, xp=np))


def test_arguments_are_never_written_to() -> None:
    x, weight = RNG.normal(size=(2, 3, 4)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
    before = x.copy(), weight.copy()
    kernels.rms_norm(x, weight, 1e-5, xp=np)
    kernels.layer_norm(x, weight, weight, 1e-5, xp=np)
    kernels.linear(x, np.stack([weight] * 3), weight[:3], xp=np)
    kernels.silu(x, xp=np)
    kernels.gelu_tanh(x, xp=np)
    assert np.array_equal(x, before[0])
    assert np.array_equal(weight, before[1])


def test_a_cache_is_written_in_place() -> None:
    cache = np.zeros((1, 1, 4, 2), np.float32)
    new = np.ones((1, 1, 2, 2), np.float32)
    written = kernels.write_cache(cache, new, 1, np.arange(4), xp=np)
    assert written is cache
    assert cache[0, 0, :, 0].tolist() == [0.0, 1.0, 1.0, 0.0]
