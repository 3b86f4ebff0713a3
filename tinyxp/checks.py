"""Checks of single values, each with one clear error: the field, the value, the limit."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any


def is_integer(value: Any) -> bool:
    """Whether value is one integer, of Python or of an array library; True and False are none."""
    try:
        return not isinstance(value, bool) and isinstance(operator.index(value), int)
    except TypeError:
        return False


def as_integer(field: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return value as an int; ValueError if it is none, is below low, or is high or more."""
    if is_integer(value):
        number = operator.index(value)
        if (low is None or number >= low) and (high is None or number < high):
            return number
    limits = ([f"{low} or more"] if low is not None else []) + (
        [f"less than {high}"] if high is not None else []
    )
    limit = f" of {' and '.join(limits)}" if limits else ""
    raise ValueError(f"{field} is {value!r}; it must be an integer{limit}")


def is_number(value: Any) -> bool:
    """Whether value is a finite real number of Python or NumPy; True and False are none."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:
        return False


def as_positive(field: str, value: Any) -> float:
    """Return value as a float; ValueError if it is no finite number above 0."""
    if not is_number(value) or not float(value) > 0.0:
        raise ValueError(f"{field} is {value!r}; it must be a finite number above 0")
    return float(value)


def as_flag(field: str, value: Any) -> bool:
    """Return value if it is True or False; ValueError for anything else."""
    if not isinstance(value, bool):
        raise ValueError(f"{field} is {value!r}; it must be True or False")
    return value
