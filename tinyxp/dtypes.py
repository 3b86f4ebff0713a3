"""The floating dtypes that the model computes in, and the names that every array library's dtypes share."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

DTYPES = ("float64", "float32", "bfloat16", "float16")
ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number."""
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The distance from 1 to the next number; rounding to nearest costs at most half of it, relatively."""


def bare_name(dtype: Any) -> str:
    """The name of any library's dtype without the library's: torch.int64 -> "int64"."""
    return _name_of_numpy(dtype) if isinstance(dtype, np.dtype) else str(dtype).rsplit(".", 1)[-1]


@lru_cache(maxsize=64)
def _name_of_numpy(dtype: np.dtype) -> str:
    """``dtype.name``, cached: NumPy, and so JAX, takes three microseconds to build it."""
    return dtype.name


def dtype_name(dtype: Any) -> str:
    """The bare name of a floating dtype of any library, or of a name; ValueError for any other."""
    name = bare_name(dtype)
    if isinstance(dtype, type):  # np.float32 and jnp.float32 are classes
        with suppress(TypeError):
            name = np.dtype(dtype).name
    if name not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; known are {', '.join(DTYPES)}")
    return name
