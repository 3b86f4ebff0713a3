"""MLX: its namespace lacks the standard's ``bool``, ``device=`` and others; this adds them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np

from tinyxp.registry import Backend


def _without_device(name: str) -> Any:
    create = getattr(mx, name)

    def function(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return create(*args, **kwargs)

    function.__name__ = name
    return function


def _asarray(x: Any, *, dtype: Any = None, device: Any = None) -> mx.array:
    return mx.array(x, dtype=dtype)


def _argsort(x: mx.array, *, axis: int = -1, stable: bool = True) -> mx.array:
    return mx.argsort(x, axis=axis)  # on the CPU and on a GPU it is a merge sort, which is stable


def _cumulative_sum(x: mx.array, *, axis: int) -> mx.array:
    return mx.cumsum(x, axis=axis)


class _Namespace(ModuleType):
    """mlx.core, with the names of the standard that it lacks."""

    bool = mx.bool_
    asarray = staticmethod(_asarray)
    argsort = staticmethod(_argsort)
    cumulative_sum = staticmethod(_cumulative_sum)
    arange = staticmethod(_without_device("arange"))
    ones = staticmethod(_without_device("ones"))
    zeros = staticmethod(_without_device("zeros"))

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)


xp = _Namespace("mlx.core")


class MlxBackend(Backend):
    """Lazy arrays that compute when their values are asked for."""

    index_dtype = "int32"

    def is_array(self, x: object) -> bool:
        return isinstance(x, mx.array)

    def to_numpy(self, x: mx.array) -> np.ndarray:
        return np.array(x.astype(mx.float32) if x.dtype == mx.bfloat16 else x)

    def device_of(self, x: Any) -> Any:
        return None

    def synchronize(self, x: Any) -> Any:
        mx.eval(x)
        return x


backend = MlxBackend("mlx", xp)
