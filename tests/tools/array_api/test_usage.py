"""What the model requests of an array library."""

from __future__ import annotations

import pytest

from tools.array_api.page import FEATURES
from tools.array_api.recorder import FUNCTIONS
from tools.array_api.usage import Usage

MASK = [[False, True, True, True, True]]
TARGETS = [[1, 4, 1, 5, -100]]


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
