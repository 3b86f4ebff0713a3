"""What every adapter does: arrays in and out, jit, gradients, synchronising; the other libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    array,
    distance,
    filled,
    float64_on,
    host,
    libraries,
)
from tinyxp import Config, Params, forward, generate, loss

from .gradients import MASK, TARGETS, check_gradient


def test_arrays_come_and_go(backend: tinyxp.Backend) -> None:
    with float64_on(backend):
        for dtype in backend.dtypes():
            x = backend.from_numpy(np.array([[1.0, -2.5], [0.0, 1024.0]]), dtype=dtype)
            assert str(x.dtype).endswith(dtype)
            assert backend.is_array(x)
            assert host(x).tolist() == [[1.0, -2.5], [0.0, 1024.0]]
        assert host(backend.from_numpy(np.array([True, False]))).tolist() == [True, False]


def test_jit(backend: tinyxp.Backend) -> None:
    """On torch through inductor, its default compiler."""
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="float32")
    ids = array(backend, np.asarray(IDS))
    if backend.name == "torch":
        pytest.importorskip("torch").compiler.reset()
    logits = backend.jit(forward)(params, ids)
    assert backend.is_array(logits)
    assert distance(logits, forward(filled(LLAMA_CONFIG), IDS)) <= 1e-5


@pytest.mark.parametrize("library", libraries("torch", "jax"))
def test_value_and_grad(library: str) -> None:
    """Uncompiled, of one block: JAX compiles every operation."""
    backend, exactly = tinyxp.backend(library), one_block(LLAMA_CONFIG)
    params = exactly.to(backend.xp, dtype="float32")
    value, grads = backend.value_and_grad(loss)(params, IDS, TARGETS, mask=MASK)
    assert float(host(value)) == pytest.approx(float(loss(exactly, IDS, TARGETS, mask=MASK)), abs=2e-6)
    check_gradient(grads, exactly, 1e-5)


def test_synchronize_returns_what_it_waits_for(backend: tinyxp.Backend) -> None:
    x = array(backend, [1.0, 2.0], "float32")
    assert host(backend.synchronize(x)).tolist() == [1.0, 2.0]


OTHERS = {"mlx": "float32", "dask": "float64", "ndonnx": "float32", "mparray": "float64"}
SLOW = ("dask", "ndonnx")

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
"""Rounding, summed in any order, of one block with logits of size 3."""


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest) -> tinyxp.Backend:
    if tinyxp.available_backends()[request.param] is None:
        pytest.skip(f"{request.param} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, at import
        return tinyxp.backend(request.param)


def one_block(config: Config) -> Params:
    shallow = replace(config, n_layers=1)
    return Params({name: x for name, x in filled(config).items() if "blocks.1." not in name}, shallow)


def slow(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test on the libraries that take seconds with ``make test-all`` alone."""
    marked = [pytest.param(name, marks=pytest.mark.rare) if name in SLOW else name for name in OTHERS]
    return pytest.mark.parametrize("other", marked, indirect=True)(test)


def test_forward_on_other_libraries(other: tinyxp.Backend) -> None:
    check_forward(other, one_block(LLAMA_CONFIG))


@slow
def test_forward_of_gpt2_on_other_libraries(other: tinyxp.Backend) -> None:
    check_forward(other, one_block(GPT2_CONFIG))


def check_forward(other: tinyxp.Backend, params: Params) -> None:
    dtype = OTHERS[other.name]
    there = params.to(other.xp, dtype=dtype)
    logits = forward(there, [[3, 1, 4]])
    assert other.is_array(logits)
    assert distance(logits, forward(params, [[3, 1, 4]])) <= TOLERANCE[dtype]
    found = forward(there, [[3, 1, 4]], mask=[[False, True, True]])
    expected = forward(params, [[1, 4]])
    assert distance(host(found)[:, 1:], expected) <= TOLERANCE[dtype]


@slow
def test_loss_on_other_libraries(other: tinyxp.Backend) -> None:
    params = one_block(LLAMA_CONFIG)
    value = loss(params.to(other.xp, dtype=OTHERS[other.name]), [[3, 1, 4]], [[1, 4, -100]])
    assert float(host(value)) == pytest.approx(float(loss(params, [[3, 1, 4]], [[1, 4, -100]])), abs=2e-6)


@slow
def test_generation_on_other_libraries(other: tinyxp.Backend) -> None:
    params = one_block(LLAMA_CONFIG)
    ids = generate(params.to(other.xp, dtype=OTHERS[other.name]), [[3, 1, 4]], 3)
    assert host(ids).tolist() == generate(params, [[3, 1, 4]], 3).tolist()
