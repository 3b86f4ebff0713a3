"""How far two arrays differ, and whether rounding explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp.dtypes import EPSILON

RMS_FACTOR, WORST_FACTOR = 10.0, 16.0
"""The limit, as multiples of the error of a correct implementation: orders of summation differ."""
RELATIVE = {"float64": 1e-13, "float32": 2e-5, "bfloat16": 5e-2, "float16": 1e-2}
"""Without a reference run: the root mean square of the difference, relative to that of the values, that still
counts as rounding."""


class Distance(NamedTuple):
    """The distance of one array from another over the compared elements."""

    rms: float
    worst: float
    at: tuple[int, ...]  # the index of the worst element
    scale: float  # the root mean square of the second array
    largest: float  # its largest absolute value

    def scaled(self, factor: float) -> Distance:
        """Return the distance with its errors multiplied by ``factor``."""
        return self._replace(rms=self.rms * factor, worst=self.worst * factor)


def absolute_difference(x: np.ndarray, y: np.ndarray, compared: np.ndarray) -> np.ndarray:
    """|x - y| in float64: 0 for elements not compared, inf if x and y differ and one is not finite."""
    with np.errstate(all="ignore"):
        difference = np.abs(x.astype(np.float64) - y)
        if not np.isfinite(difference).all():
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, np.inf))
    return np.where(compared, difference, 0.0)


def measure(x: np.ndarray, y: np.ndarray, compared: np.ndarray) -> Distance:
    """Return the distance of x from y, arrays of one shape, over the elements that ``compared`` selects."""
    difference = absolute_difference(x, y, compared)
    count = max(1, int(np.count_nonzero(np.broadcast_to(compared, y.shape))))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
    values = np.where(compared & np.isfinite(y), y, 0.0).astype(np.float64, copy=False)
    rms = float(np.sqrt(np.vdot(difference, difference) / count))
    scale = float(np.sqrt(np.vdot(values, values) / count))
    return Distance(rms, float(difference[at]), at, scale, float(np.max(np.abs(values))))


def excess(error: Distance, noise: Distance, dtype: str) -> float:
    """Return the error as a multiple of the rounding limit: above 1 it is a fault.

    ``noise`` is the error of a correct implementation at the same point. The limit also allows one rounding
    of the result to ``dtype``, since the correct implementation may happen to be exact.
    """
    rounding = EPSILON[dtype]
    rms = RMS_FACTOR * noise.rms + rounding * error.scale
    worst = WORST_FACTOR * noise.worst + rounding * error.largest
    return max(_ratio(error.rms, rms), _ratio(error.worst, worst))


def relative_excess(error: Distance, dtype: str) -> float:
    """Return the error as a multiple of ``RELATIVE``, if there is no reference run."""
    return _ratio(error.rms, RELATIVE[dtype] * error.scale)


def _ratio(x: float, limit: float) -> float:
    if x == 0.0 or limit == math.inf:  # a correct implementation overflows too: no verdict is possible
        return 0.0
    return x / limit if limit > 0.0 else math.inf


def rms_by_position(x: np.ndarray, y: np.ndarray, compared: np.ndarray, axis: int) -> tuple[float, ...]:
    """Return the root mean square of x - y at each index of ``axis``."""
    difference = absolute_difference(x, y, compared)
    others = tuple(i for i in range(y.ndim) if i != axis)
    count = np.maximum(np.sum(np.broadcast_to(compared, y.shape), axis=others), 1)
    return tuple(float(v) for v in np.sqrt(np.sum(difference * difference, axis=others) / count))


_DROPPED = {"bfloat16": 16, "tf32": 13}
"""How many of float32's bits a narrower dtype with the same range lacks."""


def round_to(x: np.ndarray, dtype: str | None) -> np.ndarray:
    """Return x rounded to the digits of ``dtype`` (also "tf32"; None: unchanged), in float64."""
    if dtype is None:
        return x
    with np.errstate(over="ignore"):
        if dtype not in _DROPPED:
            narrow: np.ndarray = x.astype(dtype)
            return narrow.astype(np.float64)
        bits: Any = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        low = _DROPPED[dtype]
        bits = (bits + (1 << low - 1) - 1 + ((bits >> low) & 1)) >> low << low  # to nearest, ties to even
        wide: np.ndarray = bits.astype(np.uint32).view(np.float32).astype(np.float64)
        return wide


FEWEST = 8
"""The fewest distinct values that show a dtype: zeros and ones fit into any."""
MOST_POINTS = 0.75
"""The share of points that must fit into a dtype to conclude that a side computes in it."""


def narrow_dtype(points: Mapping[str, np.ndarray], dtype: str) -> str | None:
    """Return the dtype with fewer digits than ``dtype`` that holds nearly all values of a trace, if any."""
    finite = [wide[np.isfinite(wide)] for wide in (x.astype(np.float64) for x in points.values())]
    finite = [x for x in finite if len(np.unique(x[:4096])) >= FEWEST]
    if not finite:
        return None
    for narrow in ("bfloat16", "float16", "float32"):
        if EPSILON[narrow] <= EPSILON[dtype]:
            continue
        fits = [bool(np.array_equal(round_to(x, narrow), x)) for x in finite]
        if np.mean(fits) >= MOST_POINTS:
            return narrow
    return None
