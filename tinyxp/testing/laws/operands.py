"""What the laws of single operations are drawn from and measured with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.strategies import Range
from tinyxp.testing.subject import Decoder

LARGEST = {"float64": 2.0**1023, "float32": 2.0**127, "float16": 2.0**15, "bfloat16": 2.0**127}
"""The largest power of two: half of the largest number is half an EPSILON below it."""


def shapes(
    subject: Decoder, *limits: Range, pool: Sequence[tuple[int, ...]]
) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes within the limits of each axis; those of ``pool`` where each new one is dear."""
    return st.sampled_from(pool) if subject.pooled else st.tuples(*(st.integers(*x) for x in limits))


def some(subject: Decoder, *values: float, pool: Sequence[float]) -> st.SearchStrategy[float]:
    """One of ``values``, or of ``pool`` where each new one is dear, since it is compiled in."""
    return st.sampled_from(pool if subject.pooled else values)


def dtypes(subject: Decoder) -> st.SearchStrategy[str]:
    """The name of a dtype that the library has."""
    return st.sampled_from(subject.backend.dtypes())


def widest(subject: Decoder) -> str:
    """The dtype that others are measured by."""
    return min(subject.backend.dtypes(), key=EPSILON.__getitem__)


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers of a seed, in float64 on NumPy; seeds of one law must differ where shapes agree."""
    return scale * np.random.default_rng(seed).normal(size=shape)


def tight(subject: Decoder, dtype: str | None = None) -> float:
    """What a handful of roundings cost, relative to the largest value: 2e-14 in float64."""
    return 90.0 * EPSILON[dtype or subject.dtype]


def rounded(subject: Decoder, x: np.ndarray, dtype: str) -> np.ndarray:
    """x as the library holds it in ``dtype``, in float64 on NumPy."""
    held: np.ndarray = subject.host(subject.array(x, dtype)).astype(np.float64)
    return held


def rounded_once(subject: Decoder, found: np.ndarray, exact: np.ndarray, dtype: str, what: str) -> None:
    """Raises AssertionError where found is farther from exact than one rounding to ``dtype``, after a dozen
    in float32."""
    assert found.shape == exact.shape, f"{what} has shape {found.shape}, expected {exact.shape}"
    exact = exact.astype(np.float64)
    slack = 16.0 * max(EPSILON["float32"], EPSILON[subject.dtype]) * max(1.0, float(np.abs(exact).max()))
    apart = np.abs(found.astype(np.float64) - exact) / (0.5 * EPSILON[dtype] * np.abs(exact) + slack)
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    assert apart[worst] <= 1.0, (
        f"{what} in {dtype} is {float(found[worst])!r} where {float(exact[worst])!r} is exact: "
        f"{float(apart[worst]):.2g} times what one rounding costs"
    )


@contextmanager
def silence() -> Iterator[None]:
    """Within it a warning is an error: no operation divides by zero or overflows on its way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def applied(subject: Decoder, f: Callable[..., Any], *arrays: Any, **static: Any) -> Any:
    """f(ops, xp, *arrays, **static) of the library's arrays, each in its own dtype, and its arrays back.

    ``Decoder.apply`` would put all of NumPy's into one dtype.
    """
    return subject.compiled(call, subject=subject, function=f, **static)(*arrays)


def call(*arrays: Any, subject: Decoder, function: Callable[..., Any], **static: Any) -> Any:
    """The same, uncompiled."""
    return function(subject.ops, subject.backend.xp, *arrays, **static)


def gradient(subject: Decoder, f: Callable[..., Any], x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """The gradient of the sum of f(ops, xp, x, *others) by x."""
    arrays = [subject.array(array) for array in (x, *others)]
    found: np.ndarray = subject.host(subject.compiled(slope, subject=subject, function=f)(*arrays))
    return found


def slope(x: Any, *others: Any, subject: Decoder, function: Callable[..., Any]) -> Any:
    """The same, of the library's arrays, uncompiled."""

    def total(x: Any) -> Any:
        return subject.backend.xp.sum(call(x, *others, subject=subject, function=function))

    return subject.backend.value_and_grad(total)(x)[1]
