"""The arrays of a comparison: the ids that go in, and the trace points that come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.doctor.points import axes, form, sort_points
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask
from tinyxp.registry import Backend

Points = dict[str, np.ndarray]
"""Trace point -> array on NumPy, in the order of the computation."""

ANY_ID = Bounds("ids", 2**31, "the limit")
"""The ids that a trace may hold: its vocabulary is not known."""
_FLOATS = ("float64", "float32", "float16")


class Batch(NamedTuple):
    """The input of both sides."""

    ids: np.ndarray  # (b, t) int64
    mask: np.ndarray | None = None  # (b, t) bool, True on real tokens

    @property
    def real(self) -> np.ndarray:
        """(b, t) bool, True on real tokens, also if there is no mask."""
        return np.ones(self.ids.shape, bool) if self.mask is None else self.mask


class Trace(NamedTuple):
    """The output of one run: its points, and the dtype that it computed in (bfloat16 is held as float32)."""

    points: Points
    dtype: str


class Recorded(NamedTuple):
    """A trace recorded elsewhere, with the ids that went in."""

    batch: Batch
    points: Points


def compared_mask(name: str, shape: tuple[int, ...], batch: Batch) -> np.ndarray:
    """Return which elements of a point are compared, as bool that broadcasts to ``shape``.

    Padding is not compared, nor are scores of keys that a query must not see: some implementations never
    compute them.
    """
    t, real = batch.ids.shape[1], batch.real
    last = name.rsplit(".", 1)[-1]
    if last == "scores":
        visible: np.ndarray = np.tri(t, dtype=bool)[None] & real[:, None, :] & real[:, :, None]
        return visible[:, None]
    return real[:, None, :, None] if len(shape) == 4 else real[:, :, None]


def narrowest_dtype(points: Mapping[str, np.ndarray]) -> str:
    """Return the name of the narrowest dtype among the arrays."""
    return min((x.dtype for x in points.values()), key=lambda dtype: dtype.itemsize).name


def check_trace(points: Mapping[str, np.ndarray], ids: Any, mask: Any = None) -> Recorded:
    """Return the trace in order with its batch axis. Raise ValueError naming the array that does not fit.

    A single sequence may lack the batch axis: ids (t,), arrays (t, ...) or (heads, t, ...).
    """
    ids = _to_native(np.asarray(ids))
    ids = as_host_integers(ids[None] if ids.ndim == 1 else ids, ANY_ID)
    if mask is not None:
        mask = _to_native(np.asarray(mask))
        mask = as_host_mask(mask[None] if mask.ndim == 1 else mask, ids.shape)
    if not points:
        raise ValueError("there is no trace point besides ids")
    b, t = ids.shape
    checked = {}
    for name in sort_points(points):
        x = to_floats(name, points[name])
        if x.ndim == len(axes(name)) - 1 and b == 1:
            x = x[None]
        sizes = {"row": b, "position": t, "key": t}
        fits = x.ndim == len(axes(name)) and 0 not in x.shape
        if not fits or any(sizes.get(axis, n) != n for axis, n in zip(axes(name), x.shape, strict=True)):
            raise ValueError(
                f"trace point {name} has shape {points[name].shape}; it must be {form(name)}, "
                f"and ids is {ids.shape}"
            )
        checked[name] = _to_native(x)
    return Recorded(Batch(ids, mask), checked)


def _to_native(x: np.ndarray) -> np.ndarray:
    """Return x in the machine's byte order."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def to_floats(name: str, x: np.ndarray) -> np.ndarray:
    """Return x, converting bfloat16 (as JAX gives it to NumPy) to float32.

    Raise ValueError for a dtype that is not floating.
    """
    if x.dtype.name == "bfloat16":
        return x.astype(np.float32)
    if x.dtype.name not in _FLOATS:
        raise ValueError(
            f"trace point {name} has dtype {x.dtype}; it must be {', '.join(_FLOATS)} or bfloat16"
        )
    return x


def find_backend(x: Any) -> Backend | None:
    """Return the adapter of the library that x is an array of; None if there is none."""
    try:
        return registry.backend_of(x)
    except ValueError:
        return None
