"""Names of dtypes, whatever library they come from, and the two numbers that each has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp.dtypes import DTYPES, EPSILON, ITEMSIZE, bare_name, dtype_name


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
def test_numpy_agrees(name: str) -> None:
    assert EPSILON[name] == np.finfo(name).eps
    assert ITEMSIZE[name] == np.dtype(name).itemsize


def test_bfloat16_has_eight_bits_of_mantissa() -> None:
    jnp = pytest.importorskip("jax.numpy")
    assert EPSILON["bfloat16"] == float(jnp.finfo(jnp.bfloat16).eps)
    assert ITEMSIZE["bfloat16"] == jnp.dtype(jnp.bfloat16).itemsize
    assert set(EPSILON) == set(ITEMSIZE) == set(DTYPES)


def test_names_of_any_library_s_dtypes(backend: tinyxp.Backend) -> None:
    for name in ("float32", "int32", "bool"):
        x = backend.xp.zeros((1,), dtype=getattr(backend.xp, name))
        assert bare_name(x.dtype).removesuffix("_") == name
    assert dtype_name(backend.xp.float32) == "float32"


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64"), "float64", "acme.float64"], ids=repr)
def test_floating_dtypes(dtype: Any) -> None:
    assert dtype_name(dtype) == "float64"


@pytest.mark.parametrize("dtype", [np.int64, "int8", "float8", None, 32], ids=repr)
def test_other_dtypes_are_rejected_by_name(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"^dtype is .*; known are float64, float32, bfloat16, float16$"):
        dtype_name(dtype)
