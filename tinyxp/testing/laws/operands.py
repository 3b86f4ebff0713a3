"""Strategies and measures that the laws of single operations share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.strategies import Range
from tinyxp.testing.subjects.decoder import Decoder

LARGEST = {"float64": 2.0**1023, "float32": 2.0**127, "float16": 2.0**15, "bfloat16": 2.0**127}
"""dtype -> its largest power of two; half of its largest number is half an EPSILON below that."""


def shapes(
    subject: Decoder, *limits: Range, pool: Sequence[tuple[int, ...]]
) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for shapes within the limits of each axis, or from ``pool`` if pooled."""
    return st.sampled_from(pool) if subject.pooled else st.tuples(*(st.integers(*x) for x in limits))


def some(subject: Decoder, *values: float, pool: Sequence[float]) -> st.SearchStrategy[float]:
    """Return a strategy for one of ``values``, or of ``pool`` if pooled: each value is compiled in."""
    return st.sampled_from(pool if subject.pooled else values)


def dtypes(subject: Decoder) -> st.SearchStrategy[str]:
    """Return a strategy for the name of a dtype that the library has."""
    return st.sampled_from(subject.backend.dtypes())


def widest(subject: Decoder) -> str:
    """Return the name of the library's most precise dtype."""
    return min(subject.backend.dtypes(), key=EPSILON.__getitem__)


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Return normal numbers of a seed, in float64. Equal shapes in one law need different seeds."""
    return scale * np.random.default_rng(seed).normal(size=shape)


def tight(subject: Decoder, dtype: str | None = None) -> float:
    """Return the cost of some ninety roundings, relative to the largest value: 2e-14 in float64."""
    return 90.0 * EPSILON[dtype or subject.dtype]


def round_to(subject: Decoder, x: np.ndarray, dtype: str) -> np.ndarray:
    """Return x rounded to ``dtype`` by the library, in float64 on NumPy."""
    held: np.ndarray = subject.host(subject.array(x, dtype)).astype(np.float64)
    return held


def check_rounded_once(subject: Decoder, found: np.ndarray, exact: np.ndarray, dtype: str, what: str) -> None:
    """Raise AssertionError if the error exceeds one rounding to ``dtype`` after about sixteen in float32."""
    assert found.shape == exact.shape, f"{what} has shape {found.shape}, expected {exact.shape}"
    exact = exact.astype(np.float64)
    slack = 16.0 * max(EPSILON["float32"], EPSILON[subject.dtype]) * max(1.0, float(np.abs(exact).max()))
    ratios = np.abs(found.astype(np.float64) - exact) / (0.5 * EPSILON[dtype] * np.abs(exact) + slack)
    worst = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    assert ratios[worst] <= 1.0, (
        f"{what} in {dtype} is {float(found[worst])!r}, but exactly {float(exact[worst])!r}: "
        f"{float(ratios[worst]):.2g} times the cost of one rounding"
    )


@contextmanager
def no_warnings() -> Iterator[None]:
    """Turn warnings into errors: no operation may divide by zero or overflow on its way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def apply_to_arrays(subject: Decoder, f: Callable[..., Any], *arrays: Any, **static: Any) -> Any:
    """Return f(ops, xp, *arrays, **static) of the library's arrays, each in its own dtype.

    ``Decoder.apply`` would convert all arrays to one dtype.
    """
    return subject.compiled(call, subject=subject, function=f, **static)(*arrays)


def call(*arrays: Any, subject: Decoder, function: Callable[..., Any], **static: Any) -> Any:
    """Return f(ops, xp, *arrays, **static), uncompiled."""
    return function(subject.ops, subject.backend.xp, *arrays, **static)


def gradient(subject: Decoder, f: Callable[..., Any], x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Return the gradient of the sum of f(ops, xp, x, *others) with respect to x."""
    arrays = [subject.array(array) for array in (x, *others)]
    found: np.ndarray = subject.host(subject.compiled(slope, subject=subject, function=f)(*arrays))
    return found


def slope(x: Any, *others: Any, subject: Decoder, function: Callable[..., Any]) -> Any:
    """Return that gradient for the library's arrays, uncompiled."""

    def total(x: Any) -> Any:
        return subject.backend.xp.sum(call(x, *others, subject=subject, function=function))

    return subject.backend.value_and_grad(total)(x)[1]
