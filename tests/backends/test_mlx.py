"""MLX's adapter: the names of the standard that its namespace lacks."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp

if tinyxp.available_backends()["mlx"] is None:
    pytest.skip("mlx is not installed", allow_module_level=True)

BACKEND = tinyxp.backend("mlx")


def test_creation_takes_a_device_and_ignores_it() -> None:
    xp = BACKEND.xp
    for x in (xp.zeros((2,), device=None), xp.ones((2,), device=None), xp.arange(2, device=None)):
        assert x.shape == (2,)
    assert BACKEND.device_of(xp.zeros((1,))) is None


def test_equal_numbers_keep_their_order() -> None:
    x = BACKEND.from_numpy(np.asarray([1.0, 0.0, 1.0, 0.0], np.float32))
    assert BACKEND.to_numpy(BACKEND.xp.argsort(x, stable=True)).tolist() == [1, 3, 0, 2]


def test_sums_and_bfloat16() -> None:
    x = BACKEND.from_numpy(np.asarray([1.0, 2.5], np.float32), dtype="bfloat16")
    assert BACKEND.to_numpy(x).dtype == np.float32
    assert BACKEND.to_numpy(BACKEND.xp.cumulative_sum(x, axis=0)).tolist() == [1.0, 3.5]
    assert BACKEND.synchronize(x) is x
