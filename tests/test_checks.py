"""Checks of single values: what passes, and the one error that names field, value and limit."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tinyxp.checks import as_flag, as_integer, as_positive, is_integer, is_number


@pytest.mark.parametrize("value", [0, -3, 7, np.int8(4), np.asarray(5), 2**70], ids=repr)
def test_integers(value: Any) -> None:
    assert is_integer(value)
    assert as_integer("n", value) == int(value)
    assert type(as_integer("n", value)) is int


@pytest.mark.parametrize(
    "value", [True, False, 1.0, "1", None, [1], np.asarray([1, 2]), np.float32(2)], ids=repr
)
def test_what_is_no_integer(value: Any) -> None:
    assert not is_integer(value)
    with pytest.raises(ValueError, match=re.escape(f"n is {value!r}; it must be an integer")):
        as_integer("n", value)


def test_limits_of_integers() -> None:
    assert as_integer("n", 1, low=1, high=3) == 1
    assert as_integer("n", 2, low=1, high=3) == 2
    with pytest.raises(ValueError, match=r"^n is 0; it must be an integer of 1 or more and less than 3$"):
        as_integer("n", 0, low=1, high=3)
    with pytest.raises(ValueError, match=r"^n is 3; it must be an integer of less than 3$"):
        as_integer("n", 3, high=3)
    with pytest.raises(ValueError, match=r"^n is -1; it must be an integer of 0 or more$"):
        as_integer("n", -1, low=0)


@pytest.mark.parametrize("value", [0, 1.5, -2.0, Fraction(1, 3), np.float32(0.1), np.int64(3)], ids=repr)
def test_numbers(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, float("inf"), float("nan"), "1", None, 10**400, 1j], ids=str)
def test_what_is_no_finite_number(value: Any) -> None:
    assert not is_number(value)
    with pytest.raises(ValueError, match="it must be a finite number above 0"):
        as_positive("eps", value)


def test_positive_numbers() -> None:
    assert as_positive("eps", np.float64(0.5)) == 0.5
    assert type(as_positive("eps", 2)) is float
    for value in (0, -1.0):
        with pytest.raises(ValueError, match=rf"^eps is {value!r}; it must be a finite number above 0$"):
            as_positive("eps", value)


def test_flags() -> None:
    assert as_flag("last", True) is True
    assert as_flag("last", False) is False
    for value in (0, 1, None, "True", np.True_):
        with pytest.raises(ValueError, match=r"^last is .*; it must be True or False$"):
            as_flag("last", value)
