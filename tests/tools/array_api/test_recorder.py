"""The namespace that records every use of it and of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import CONFIGS, IDS, drawn, host, libraries
from tinyxp import extend, forward, loss, new_cache, registry
from tools.array_api.recorder import Recorder, Use, registered

MASK = [[False, True, True, True, True]]
TARGETS = [[1, 4, 1, 5, -100]]


def in_place(x: Any, xp: Any) -> None:
    x[1:] = 0.0


def augmented(x: Any, xp: Any) -> None:
    x += 1.0


@pytest.mark.parametrize(
    "function, use",
    [
        (lambda x, xp: x[x > 1.0], Use("index", "x[bool]", "float64[bool]")),
        (lambda x, xp: x[xp.arange(2)], Use("index", "x[int64]", "float64[int64]")),
        (lambda x, xp: x[-1], Use("index", "x[-i]", "float64[-i]")),
        (lambda x, xp: x[None, ..., ::2], Use("index", "x[None, ..., ::n]", "float64[None, ..., ::n]")),
        (in_place, Use("in place", "x[n:] = y", "float64[n:] = y")),
        (augmented, Use("in place", "+=", "float64 += py float -> float64")),
        (lambda x, xp: xp.exp(x, out=x), Use("function", "exp", "exp(float64, out=float64) -> float64")),
        (lambda x, xp: xp.einsum("i->", x), Use("outside", "einsum", "einsum(a str, float64) -> float64")),
        (lambda x, xp: xp.euler_gamma, Use("outside", "euler_gamma")),
        (lambda x, xp: x.sum(), Use("outside", "x.sum()", "x.sum() -> float64")),
        (lambda x, xp: x.flat, Use("outside", "x.flat")),
        (lambda x, xp: np.asarray(x), Use("outside", "np.asarray(x)")),
        (lambda x, xp: x.dtype == "float64", Use("outside", "dtype == a str")),
        (lambda x, xp: np.float64(2.0) * x, Use("operator", "*", "a float64 * float64 -> float64")),
        (lambda x, xp: 2.0 - x, Use("operator", "-", "py float - float64 -> float64")),
        (lambda x, xp: x @ x, Use("operator", "@", "float64 @ float64 -> float64")),
        (lambda x, xp: abs(-x), Use("operator", "abs(x)", "abs(float64) -> float64")),
        (lambda x, xp: bool(x[0]), Use("attribute", "bool(x)", "bool(float64)")),
        (lambda x, xp: x.T, Use("attribute", "x.T")),
        (
            lambda x, xp: x.__dlpack_device__(),
            Use("attribute", "x.__dlpack_device__()", "x.__dlpack_device__() -> ints"),
        ),
        (lambda x, xp: xp.pi, Use("constant", "xp.pi")),
        (lambda x, xp: xp.zeros(2, dtype=xp.complex64), Use("dtype", "complex64")),
        (lambda x, xp: xp.linalg.norm(x), Use("function", "linalg.norm", "linalg.norm(float64) -> float64")),
        (lambda x, xp: xp.unique_counts(x).counts[:1], Use("index", "x[:n]", "int64[:n]")),
        (lambda x, xp: x + xp.ones((2, 1)), Use("broadcasting", "+", "+: 1-d with 2-d")),
        (lambda x, xp: x * xp.ones(3, dtype=xp.float32), Use("promotion", "*", "float64 * float32")),
        (
            lambda x, xp: xp.concat([x, xp.arange(2)]),
            Use("promotion", "concat", "concat([float64, int64])"),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Use) else "",
)
def test_it_notices(function: Callable[[Any, Any], Any], use: Use) -> None:
    recorder = Recorder(np)
    x = recorder.array([0.0, 1.0, 2.0])
    recorder.where = ("a stage", "a family")
    function(x, recorder.namespace)
    assert recorder.uses[use] == {("a stage", "a family")}


def test_what_the_namespace_lacks_is_missing() -> None:
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(AttributeError, match="einsum"):
        Recorder(strict).namespace.einsum  # noqa: B018
    with pytest.raises(AttributeError, match="__path__"):
        Recorder(np).namespace.__path__  # noqa: B018


def results(params: tinyxp.Params) -> list[np.ndarray]:
    """All that a run of every kind returns."""
    logits, cache = extend(params, IDS, new_cache(params, 1, 6), mask=MASK)
    step, cache = extend(params, [[2]], cache)
    whole, mean = forward(params, IDS), loss(params, IDS, TARGETS, mask=MASK)
    return [host(x) for x in (whole, mean, logits, step, *cache.keys, *cache.values, cache.real)]


@pytest.mark.parametrize("library", libraries("numpy", "strict"))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("family", CONFIGS)
def test_results_are_the_same_bits(library: str, dtype: str, family: str) -> None:
    backend = tinyxp.backend(library)
    if dtype not in backend.dtypes():
        pytest.skip(f"{library} has no {dtype}")
    params = drawn(CONFIGS[family])
    recorder = Recorder(backend.xp)
    with registered(recorder):
        recorded = results(params.to(recorder.namespace, dtype=dtype))
    expected = results(params.to(backend.xp, dtype=dtype))
    assert [x.dtype for x in recorded] == [x.dtype for x in expected]
    assert [x.tobytes() for x in recorded] == [x.tobytes() for x in expected]
    assert len(recorder.uses) > 50


def test_the_registry_forgets_it() -> None:
    before = dict(registry._loaded)
    recorder = Recorder(np)
    with registered(recorder) as backend:
        params = tinyxp.init(CONFIGS["llama"], xp=recorder.namespace)
        assert params.backend is backend
    assert registry._loaded == before
    with pytest.raises(ValueError, match="RecordedArray is not an array of a known library"):
        registry.backend_of(recorder.array([1.0]))


def test_the_registry_forgets_it_after_an_error() -> None:
    before = dict(registry._loaded)
    with pytest.raises(ZeroDivisionError), registered(Recorder(np)):
        raise ZeroDivisionError
    assert registry._loaded == before


@pytest.mark.usefixtures("usage")
def test_a_run_leaves_the_registry_alone() -> None:
    assert "recorded" not in registry._loaded
    assert tinyxp.init(CONFIGS["llama"]).backend is tinyxp.backend("numpy")
