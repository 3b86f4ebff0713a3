"""Dask: lazy, chunked NumPy arrays, through array_api_compat's namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import array_api_compat.dask.array as xp
import dask
import dask.array as da
import numpy as np

from tinyxp.registry import Backend


class DaskBackend(Backend):
    """Lazy: values are computed when NumPy is asked for, as checking ids asks."""

    def is_array(self, x: object) -> bool:
        return isinstance(x, da.Array)

    def to_numpy(self, x: Any) -> np.ndarray:
        return np.asarray(x.compute())

    def synchronize(self, x: Any) -> Any:
        return dask.persist(x)[0]


class _Namespace(ModuleType):
    """array_api_compat's, with take_along_axis, and a reshape for axes that do not divide evenly."""

    @staticmethod
    def reshape(x: da.Array, shape: tuple[int, ...]) -> da.Array:
        sizes = np.broadcast_to(np.int8(0), x.shape).reshape(shape).shape
        return da.map_blocks(
            np.reshape,
            x.rechunk(x.shape),
            sizes,
            dtype=x.dtype,
            drop_axis=list(range(x.ndim)),
            new_axis=list(range(len(sizes))),
            chunks=sizes,
        )

    @staticmethod
    def take_along_axis(x: da.Array, indices: da.Array, *, axis: int) -> da.Array:
        shape = list(x.shape)
        shape[axis] = indices.shape[axis]
        return da.map_blocks(
            np.take_along_axis,
            x.rechunk(x.shape),
            indices.rechunk(indices.shape),
            axis=axis,
            dtype=x.dtype,
            chunks=tuple(shape),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(xp, name)


backend = DaskBackend("dask", _Namespace("dask.array"))
