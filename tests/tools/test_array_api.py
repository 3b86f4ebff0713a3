"""What the model asks of an array library: the page that says so, and the recorder that finds it out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import CONFIGS, IDS, drawn, host, libraries
from tinyxp import extend, forward, loss, new_cache, registry
from tools.array_api.page import FEATURES, as_markdown
from tools.array_api.recorder import FUNCTIONS, Recorder, Use, registered
from tools.array_api.usage import Usage, array_api_usage

PAGE = Path(__file__).parents[2] / "docs" / "array-api.md"
MASK = [[False, True, True, True, True]]
TARGETS = [[1, 4, 1, 5, -100]]


@pytest.fixture(scope="module")
def usage() -> Usage:
    return array_api_usage(np)


# The page


def test_the_page_is_what_the_command_prints() -> None:
    command = [sys.executable, "-W", "error", "-m", "tools.array_api"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert printed.splitlines() == PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_is_the_same_whatever_computes(usage: Usage) -> None:
    assert as_markdown(usage) == PAGE.read_text(encoding="utf-8")


# What it says


def test_functions_of_a_llama(usage: Usage) -> None:
    used = usage.names("function", stage="forward", family="Llama")
    assert {"matmul", "matrix_transpose", "cos", "sin", "concat", "take", "result_type"} <= used
    assert not used & {"einsum", "tensordot", "tanh", "sign", "sqrt", "take_along_axis", "argmax"}


def test_each_activation_has_its_function(usage: Usage) -> None:
    only = {name: usage.names("function", family=name) for name in ("GPT-2", "Llama", "erf GELU")}
    assert only["GPT-2"] - only["Llama"] - only["erf GELU"] == {"tanh"}
    assert only["erf GELU"] - only["Llama"] - only["GPT-2"] == {"sign"}
    assert only["Llama"] - only["GPT-2"] - only["erf GELU"] == {"abs", "cos", "sin"}


def test_what_each_stage_adds_to_forward(usage: Usage) -> None:
    used = usage.names("function", stage="forward")
    assert usage.names("function", stage="loss") - used == {"log", "not_equal", "take_along_axis"}
    assert usage.names("function", stage="step") - used == {"ones", "zeros", "take_along_axis"}
    assert usage.names("function", stage="sampling") - used == {
        "argmax",
        "argsort",
        "cumulative_sum",
        "min",
        "take_along_axis",
    }


def test_forms_are_exact(usage: Usage) -> None:
    forms = {use.form for use in usage.uses}
    assert "argsort(float64, axis=-1, stable=True) -> int64" in forms
    assert "astype(float16, xp.float32) -> float32" in forms
    assert "where(bool, float32, py float) -> float32" in forms
    assert "float32[..., :n]" in forms
    assert "&: 2-d with 4-d" in forms


def test_nothing_but_the_standard_computes(usage: Usage) -> None:
    assert usage.names("outside") == {"np.asarray(x)", "str(dtype)"}
    assert usage.names("outside", stage="sampling") == set()
    assert usage.names("function") <= FUNCTIONS


def test_features_that_are_used(usage: Usage) -> None:
    asked = {feature for feature, asks in FEATURES.items() if any(map(asks, usage.uses))}
    assert asked == {
        "a Python scalar in place of an array (new in 2024.12)",
        "`device=` on creation",
        "`x.to_device(...)`",
        "reading a value: `int(x)`, `float(x)`, `bool(x)`",
    }
    assert usage.names("in place") == set()
    assert usage.names("promotion") == set()


def test_forward_reads_no_value(usage: Usage) -> None:
    read = {
        use.name for use in usage.uses if FEATURES["reading a value: `int(x)`, `float(x)`, `bool(x)`"](use)
    }
    assert read == {"int(x)"}
    assert not read & usage.names("attribute", stage="forward")


def test_the_functions_are_those_of_the_standard() -> None:
    strict = pytest.importorskip("array_api_strict")
    assert set(dir(strict)) >= FUNCTIONS
    functions = {name for name in strict.__all__ if callable(getattr(strict, name))}
    later = {"broadcast_shapes", "isin"}  # of 2025.12
    assert {name for name in functions if name.islower() and "flags" not in name} - FUNCTIONS <= later


# The recorder


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


def test_what_a_bad_function_does_is_on_the_page() -> None:
    recorder = Recorder(np)
    x = recorder.array([0.0, 1.0, 2.0])
    x[x > 1.0] = 0.0
    x[x < 1.0]
    recorder.namespace.einsum("i->", x)
    page = as_markdown(Usage({use: frozenset({("forward", "Llama")}) for use in recorder.uses}))
    assert "| an index that is a boolean array (`boolean_indexing`) | yes | `x[bool]` in forward |" in page
    assert "| writing in place | yes | `x[bool] = y` in forward |" in page
    assert "| `einsum(a str, float64) -> float64` | x |  |  |  |  |  | Llama |" in page


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
