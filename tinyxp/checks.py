"""Checks of single numbers, each with one clear error: the field, the value, the limit."""

from __future__ import annotations

import math
from numbers import Integral, Real


def is_integer(value: object) -> bool:
    """Whether value is an integer of Python or NumPy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether value is a real number of Python or NumPy; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_integer(field: str, value: object, *, low: int | None = None, high: int | None = None) -> None:
    """Raises ValueError where value is no integer, is below low, or is high or more."""
    limits = ([f"{low} or more"] if low is not None else []) + (
        [f"less than {high}"] if high is not None else []
    )
    wrong = not is_integer(value)
    if not wrong:
        number = int(value)  # type: ignore[call-overload]
        wrong = (low is not None and number < low) or (high is not None and number >= high)
    if wrong:
        limit = f" of {' and '.join(limits)}" if limits else ""
        raise ValueError(f"{field} is {value!r}; it must be an integer{limit}")


def check_positive(field: str, value: object) -> None:
    """Raises ValueError where value is no finite number above 0."""
    if not is_number(value) or not 0.0 < float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"{field} is {value!r}; it must be a finite number above 0")
