"""How far arrays are apart, and whether that is rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp.dtypes import EPSILON

RMS_FACTOR, WORST_FACTOR = 10.0, 16.0
"""How many times the error of a right implementation another one may have: orders of summation differ."""
RELATIVE = {"float64": 1e-13, "float32": 2e-5, "bfloat16": 5e-2, "float16": 1e-2}
"""Without a referee: the root mean square of the difference that passes for rounding, relative to that of the
values."""


class Distance(NamedTuple):
    """The distance of two arrays over the numbers that count."""

    rms: float
    worst: float
    at: tuple[int, ...]  # the place of the worst
    scale: float  # the root mean square of the second array
    largest: float  # its largest absolute value

    def scaled(self, factor: float) -> Distance:
        return self._replace(rms=self.rms * factor, worst=self.worst * factor)


def apart(x: np.ndarray, y: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """|x - y| in float64, 0 where a number does not count, inf where just one of the two is finite."""
    with np.errstate(all="ignore"):
        difference = np.abs(x.astype(np.float64) - y)
        if not np.isfinite(difference).all():
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, np.inf))
    return np.where(counted, difference, 0.0)


def measure(x: np.ndarray, y: np.ndarray, counted: np.ndarray) -> Distance:
    """The distance of x from y, arrays of one shape."""
    difference = apart(x, y, counted)
    count = max(1, int(np.count_nonzero(np.broadcast_to(counted, y.shape))))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
    seen = np.where(counted & np.isfinite(y), y, 0.0).astype(np.float64, copy=False)
    rms = float(np.sqrt(np.vdot(difference, difference) / count))
    scale = float(np.sqrt(np.vdot(seen, seen) / count))
    return Distance(rms, float(difference[at]), at, scale, float(np.max(np.abs(seen))))


def excess(error: Distance, noise: Distance, dtype: str) -> float:
    """How many times the error exceeds what rounding may cost: above 1 it is a fault.

    ``noise`` is the error of a right implementation at the same place. A rounding of the result in ``dtype``
    is always allowed, since the right one may happen to be exact.
    """
    rounding = EPSILON[dtype]
    rms = RMS_FACTOR * noise.rms + rounding * error.scale
    worst = WORST_FACTOR * noise.worst + rounding * error.largest
    return max(_ratio(error.rms, rms), _ratio(error.worst, worst))


def relative_excess(error: Distance, dtype: str) -> float:
    """The same without a right implementation to compare with: against ``RELATIVE``."""
    return _ratio(error.rms, RELATIVE[dtype] * error.scale)


def _ratio(x: float, allowed: float) -> float:
    if x == 0.0 or allowed == math.inf:  # where a right implementation overflows, nothing can be told
        return 0.0
    return x / allowed if allowed > 0.0 else math.inf


def by_position(x: np.ndarray, y: np.ndarray, counted: np.ndarray, position: int) -> list[float]:
    """The root mean square of the difference at each index of the axis ``position``."""
    difference = apart(x, y, counted)
    others = tuple(i for i in range(y.ndim) if i != position)
    number = np.maximum(np.sum(np.broadcast_to(counted, y.shape), axis=others), 1)
    return [float(v) for v in np.sqrt(np.sum(difference * difference, axis=others) / number)]


_DROPPED = {"bfloat16": 16, "tf32": 13}
"""How many of float32's bits a narrower dtype of its range lacks."""


def rounded(x: np.ndarray, dtype: str | None) -> np.ndarray:
    """x rounded to the digits of ``dtype`` (also "tf32"; None: as it is), in float64."""
    if dtype is None:
        return x
    with np.errstate(over="ignore"):
        if dtype not in _DROPPED:
            narrow: np.ndarray = x.astype(dtype)
            return narrow.astype(np.float64)
        bits: Any = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        low = _DROPPED[dtype]
        bits = (bits + (1 << low - 1) - 1 + ((bits >> low) & 1)) >> low << low  # to the nearest, ties to even
        wide: np.ndarray = bits.astype(np.uint32).view(np.float32).astype(np.float64)
        return wide


FEWEST = 8
"""Of so many numbers at least digits can be told: zeros and ones have few in any dtype."""
MOST_POINTS = 0.75
"""The share of points with no more digits than a dtype's that says that a side computes in it."""


def narrow_dtype(trace: Mapping[str, np.ndarray], dtype: str) -> str | None:
    """The dtype with fewer digits than ``dtype`` that nearly all values of a trace are numbers of, if any."""
    finite = [wide[np.isfinite(wide)] for wide in (x.astype(np.float64) for x in trace.values())]
    finite = [x for x in finite if len(np.unique(x[:4096])) >= FEWEST]
    if not finite:
        return None
    for narrow in ("bfloat16", "float16", "float32"):
        if EPSILON[narrow] <= EPSILON[dtype]:
            continue
        held = [bool(np.array_equal(rounded(x, narrow), x)) for x in finite]
        if np.mean(held) >= MOST_POINTS:
            return narrow
    return None
