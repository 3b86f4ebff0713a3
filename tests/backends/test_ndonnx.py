"""ndonnx's adapter: two functions of its own, and arrays without values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tinyxp

if tinyxp.available_backends()["ndonnx"] is None:
    pytest.skip("ndonnx is not installed", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    BACKEND = tinyxp.backend("ndonnx")


def test_matmul_broadcasts() -> None:
    a, b = np.arange(12.0).reshape(2, 2, 3), np.arange(6.0).reshape(3, 2)
    y = BACKEND.xp.matmul(BACKEND.from_numpy(a), BACKEND.from_numpy(b))
    assert np.array_equal(BACKEND.to_numpy(y), a @ b)


def test_taking_along_an_axis_broadcasts_the_indices() -> None:
    x, index = np.arange(12.0).reshape(2, 3, 2), np.asarray([[[2]], [[0]]])
    y = BACKEND.xp.take_along_axis(BACKEND.from_numpy(x), BACKEND.from_numpy(index), axis=1)
    assert np.array_equal(BACKEND.to_numpy(y), [[[4.0, 5.0]], [[6.0, 7.0]]])


def test_an_array_of_a_graph_has_no_values() -> None:
    import ndonnx

    assert BACKEND.is_concrete(BACKEND.from_numpy(np.ones(2)))
    assert not BACKEND.is_concrete(ndonnx.argument(shape=(2,), dtype=ndonnx.float32))
