"""Dtypes: every op returns the one of its first argument, for every pair, and changes nothing."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import array, compiled, distance, float64_on, host, kind
from tinyxp import ops
from tinyxp.dtypes import EPSILON


def every_op(x: Any, w: Any, xp: Any) -> dict[str, Any]:
    """Each op on x (2, 4) with weights w (4, 4) of a dtype that may differ."""
    heads = xp.reshape(x, (1, 1, 2, 4))
    angles = xp.astype(xp.reshape(x[:, :2], (1, 1, 2, 2)), xp.float32)
    visible = xp.ones((1, 1, 2, 2), dtype=xp.bool)
    return {
        "linear": ops.linear(x, w, xp=xp),
        "linear with a bias": ops.linear(x, w, w[0, :], xp=xp),
        "layer_norm": ops.layer_norm(x, w[0, :], w[1, :], 1e-5, xp=xp),
        "rms_norm": ops.rms_norm(x, w[0, :], 1e-5, xp=xp),
        "softmax": ops.softmax(x, xp=xp),
        "silu": ops.silu(x, xp=xp),
        "gelu": ops.gelu(x, xp=xp),
        "gelu_tanh": ops.gelu_tanh(x, xp=xp),
        "rotary": ops.rotary(heads, xp.cos(angles), xp.sin(angles), xp=xp),
        "attention": ops.attention(heads, heads, heads, visible, xp=xp),
        "write_cache": ops.write_cache(heads, heads[:, :, :1, :], 0, xp.arange(2), xp=xp),
    }


def pairs() -> list[Any]:
    """Each library with each pair of dtypes. JAX compiles each pair: those without float32 that are not equal
    wait for ``make test-all``."""
    return [
        pytest.param(name, of_x, of_w, marks=pytest.mark.rare if rare else ())
        for name, of_x, of_w in itertools.product(("numpy", "torch", "jax", "strict"), EPSILON, EPSILON)
        if [rare := name == "jax" and of_x != of_w and "float32" not in (of_x, of_w)]
    ]


@pytest.mark.parametrize("backend, of_x, of_w", pairs(), indirect=["backend"])
def test_the_dtype_of_x_is_the_dtype_of_the_result(backend: tinyxp.Backend, of_x: str, of_w: str) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4)), rng.normal(size=(4, 4))
    exact = every_op(x, w, np)
    with float64_on(backend):
        if not {of_x, of_w} <= set(backend.dtypes()):
            pytest.skip(f"{backend.name} lacks {of_x} or {of_w}")
        run = compiled(backend, partial(every_op, xp=backend.xp))
        for name, y in run(array(backend, x, of_x), array(backend, w, of_w)).items():
            assert kind(y) == of_x, name
            # Some eight roundings of numbers of size 2 to 4, in the coarser of the two dtypes.
            allowed = 32.0 * max(EPSILON[of_x], EPSILON[of_w], EPSILON["float32"])
            assert distance(y, exact[name]) <= allowed, name


def test_scalars_do_not_widen(backend: tinyxp.Backend) -> None:
    """float32 / np.sqrt(64) is float64 on NumPy: no op may use a NumPy scalar."""
    x = array(backend, np.ones((2, 4)), "float32")
    assert {kind(y) for y in every_op(x, backend.xp.concat([x, x], axis=0), backend.xp).values()} == {
        "float32"
    }


def test_ops_do_not_change_their_arguments(backend: tinyxp.Backend) -> None:
    x, w = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((2, 4), (4, 4)))
    there = array(backend, x.copy()), array(backend, w.copy())
    every_op(*there, backend.xp)
    assert np.array_equal(host(there[0]), x)
    assert np.array_equal(host(there[1]), w)
