"""The strategies and measures of the laws of single operations."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tinyxp.testing import subject
from tinyxp.testing.laws.operands import (
    LARGEST,
    check_rounded_once,
    no_warnings,
    normal,
    round_to,
    tight,
    widest,
)

NUMPY = subject("numpy")


def test_the_largest_power_of_two_is_finite_and_twice_it_is_not() -> None:
    for dtype in ("float64", "float32", "float16"):
        with np.errstate(over="ignore"):
            largest = np.asarray(LARGEST[dtype], dtype)
            assert np.isfinite(largest)
            assert np.isinf(largest * np.asarray(2.0, dtype))


def test_one_rounding_is_allowed_and_two_are_not() -> None:
    exact = normal(0, 200)
    once = exact.astype("float16").astype("float64")
    check_rounded_once(NUMPY, once, exact, "float16", "x")
    worst = exact + 2.0 * np.abs(exact) * 2.0**-11
    with pytest.raises(AssertionError, match="times the cost of one rounding"):
        check_rounded_once(NUMPY, worst, exact, "float16", "x")
    with pytest.raises(AssertionError, match="x has shape"):
        check_rounded_once(NUMPY, once[:3], exact, "float16", "x")


def test_dtypes_round_and_are_ordered_by_precision() -> None:
    assert widest(NUMPY) == "float64"
    assert tight(NUMPY) < tight(NUMPY, "float32")
    assert round_to(NUMPY, np.array([1.0 + 2.0**-12]), "float16").tolist() == [1.0]


def test_warnings_are_errors_inside() -> None:
    with pytest.raises(UserWarning), no_warnings():
        warnings.warn("loud", stacklevel=1)
