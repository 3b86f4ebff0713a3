"""mparray's adapter: numbers of many digits, rounded to float64 on the way out."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp

if tinyxp.available_backends()["mparray"] is None:
    pytest.skip("mparray is not installed", allow_module_level=True)

BACKEND = tinyxp.backend("mparray")


def test_every_kind_of_number_comes_back() -> None:
    for x in (np.asarray([[0.1, -2.5]]), np.asarray([1, -2]), np.asarray([True, False])):
        y = BACKEND.to_numpy(BACKEND.from_numpy(x))
        assert y.tolist() == x.tolist()
        assert y.dtype.kind == x.dtype.kind


def test_float64_in_and_out_is_exact() -> None:
    x = np.random.default_rng(0).normal(size=5)
    assert np.array_equal(BACKEND.to_numpy(BACKEND.from_numpy(x)), x)
