"""Arithmetic in few digits: arrays whose every operation is rounded to a narrow dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.change import Kernel, KernelEdit
from tinyxp.model import Context


class Narrow(np.ndarray):
    """Numbers of float64, rounded to ``digits``, as are the results of ufuncs of them and their operands."""

    digits: str

    def __array_finalize__(self, source: Any) -> None:
        self.digits = getattr(source, "digits", "float64")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        named.pop("out", None)  # NumPy's mean passes its own sum as out, and reads what is returned
        plain = [_operand(x, self.digits) for x in inputs]
        if ufunc is np.power and np.ndim(inputs[1]) == 0 and inputs[1] == -0.5:
            # Most code divides by the root: the root is rounded, its reciprocal is not.
            return _as_narrow(1.0 / round_to(np.sqrt(plain[0]), self.digits), self.digits)
        result = getattr(ufunc, method)(*plain, **named)
        return narrow(result, self.digits) if np.asarray(result).dtype.kind == "f" else result


def _operand(x: Any, digits: str) -> Any:
    plain = np.asarray(x)
    return round_to(plain, digits) if plain.dtype.kind == "f" and not isinstance(x, Narrow) else plain


def _as_narrow(x: np.ndarray, digits: str) -> Narrow:
    y = x.view(Narrow)
    y.digits = digits
    return y


def narrow(x: Any, digits: str) -> Narrow:
    """x as an array that computes in ``digits``."""
    return _as_narrow(round_to(np.asarray(x, np.float64), digits), digits)


def widen(x: Any) -> np.ndarray:
    """The numbers of x in float64, as a plain array."""
    return np.asarray(x, np.float64)


def compute_in(digits: str) -> KernelEdit:
    """The edit of a kernel that computes in ``digits``, operation by operation."""

    def wrap(kernel: Kernel, ctx: Context) -> Kernel:
        def narrowed(*arrays: Any, **named: Any) -> Any:
            given = (narrow(x, digits) if isinstance(x, np.ndarray) else x for x in arrays)
            return widen(kernel(*given, **named))

        return narrowed

    return wrap
