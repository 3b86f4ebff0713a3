"""NumPy: eager, on the CPU, without gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tinyxp.registry import Backend


class NumpyBackend(Backend):
    """NumPy's own namespace conforms to the standard from 2.3 on."""

    has_views = True

    def is_array(self, x: object) -> bool:
        return isinstance(x, (np.ndarray, np.generic))  # reductions give scalars

    def join_views(self, arrays: Sequence[Any]) -> np.ndarray | None:
        first, end = arrays[0], arrays[0].__array_interface__["data"][0]
        for x in arrays:
            apart = x.__array_interface__["data"][0] != end or x.base is None or x.base is not first.base
            if apart or not x.flags.c_contiguous or x.dtype != first.dtype or x.shape[1:] != first.shape[1:]:
                return None
            end += x.nbytes
        shape = (sum(x.shape[0] for x in arrays), *first.shape[1:])
        row = math.prod(first.shape[1:]) * first.itemsize  # the stride of a single row may be any number
        return as_strided(first, shape, (row, *first.strides[1:]), writeable=first.flags.writeable)


backend = NumpyBackend("numpy", np)
