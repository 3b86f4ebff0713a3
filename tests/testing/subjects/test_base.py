"""What every subject has: comparisons within rounding, and reasons why laws do not apply."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp.testing import Subject
from tinyxp.testing.subjects.base import ABILITIES, ROUNDING


def of(dtype: str = "float64", *abilities: str, pooled: bool = False) -> Subject:
    return Subject("mine", "mine()", frozenset(abilities), dtype, pooled)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_close_allows_the_rounding_of_its_dtype_relative_to_the_largest_value(dtype: str) -> None:
    expected = np.array([1.0, 1000.0])
    of(dtype).close([1.0, 1000.0 + 900.0 * ROUNDING[dtype]], expected)
    with pytest.raises(AssertionError, match=r"x at \(0,\) is "):
        of(dtype).close([1.0 + 1100.0 * ROUNDING[dtype], 1000.0], expected, "x")


def test_close_names_the_worst_element_and_nan_is_worst() -> None:
    with pytest.raises(AssertionError, match=r"^x at \(1, 0\) is nan, expected 2.0: difference nan"):
        of().close([[0.0], [np.nan]], [[5.0], [2.0]], "x")
    with pytest.raises(AssertionError, match=r"difference 5, allowed 0.5"):
        of().close([0.0, 5.0], [0.0, 0.0], within=0.5)


def test_equal_names_the_first_difference_and_shapes_must_agree() -> None:
    with pytest.raises(AssertionError, match=r"^ids at \(1,\) is 3, expected exactly 2"):
        of().equal([1, 3, 4], [1, 2, 2], "ids")
    for compare in (of().equal, of().close):
        with pytest.raises(AssertionError, match=r"^x has shape \(1,\), expected \(1, 1\)"):
            compare([1.0], [[1.0]], "x")


def test_needs_are_abilities_references_or_packages() -> None:
    assert of("float64", "mask").lacks(frozenset({"mask", "numpy"})) == ""
    assert of().lacks(frozenset({"mask"})) == ABILITIES["mask"]
    assert of().lacks(frozenset({"not_a_package"})) == "not_a_package is not installed"


def test_a_pooled_subject_draws_one_shape() -> None:
    assert of(pooled=True).shape((1, 3), (1, 6)) == {"rows": (2, 2), "columns": (5, 5)}
    assert of().shape((1, 3), (1, 6)) == {"rows": (1, 3), "columns": (1, 6)}
