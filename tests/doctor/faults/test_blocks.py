"""What faults of the MLP, the residuals and the logits compute, by their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import Points, fault_of, right_variant, run
from tinyxp.doctor.faults.blocks import ACTIVATIONS


def wrong_run(key: str) -> Points:
    return run(right_variant(LLAMA_SMALL).with_faults(fault_of(LLAMA_SMALL, key)))


def silu(x: Any) -> Any:
    return x / (1.0 + np.exp(-x))


HIDDEN: dict[str, Callable[[Any, Any], Any]] = {
    "gate and up swapped": lambda g, u: silu(u) * g,
    "hidden is act(gate)": lambda g, u: silu(g),
    "hidden is act(up)": lambda g, u: silu(u),
    "hidden is act(gate) + up": lambda g, u: silu(g) + u,
    "hidden is act(gate up)": lambda g, u: silu(g * u),
    "relu for silu": lambda g, u: np.maximum(g, 0.0) * u,
    "relu2 for silu": lambda g, u: np.maximum(g, 0.0) ** 2 * u,
    "quick_gelu for silu": lambda g, u: g / (1.0 + np.exp(-1.702 * g)) * u,
    "none for silu": lambda g, u: g * u,
}


@pytest.mark.parametrize("key", HIDDEN)
def test_hidden(key: str) -> None:
    points = wrong_run(key)
    expected = HIDDEN[key](points["blocks.0.mlp.gate"], points["blocks.0.mlp.up"])
    np.testing.assert_allclose(points["blocks.0.mlp.hidden"], expected, rtol=1e-9, atol=1e-12)


def test_two_faults_of_the_hidden_units_at_once() -> None:
    faults = [fault_of(LLAMA_SMALL, key) for key in ("relu for silu", "gate and up swapped")]
    for order in (faults, faults[::-1]):
        points = run(right_variant(LLAMA_SMALL).with_faults(*order))
        expected = np.maximum(points["blocks.0.mlp.up"], 0.0) * points["blocks.0.mlp.gate"]
        np.testing.assert_allclose(points["blocks.0.mlp.hidden"], expected, rtol=1e-9)


def test_every_activation_is_one_at_large_numbers_and_named_in_words() -> None:
    x = np.array([-50.0, 0.0, 50.0])
    for name, (function, words, rank) in ACTIVATIONS.items():
        assert np.isfinite(function(x, xp=np)).all(), name
        assert words
        assert rank in (1, 2)


@pytest.mark.parametrize(
    ("key", "point", "parts"),
    [
        ("residual around attention missing", "attn_residual", ["attn.out"]),
        ("residual around attention from the norm", "attn_residual", ["attn_norm", "attn.out"]),
        ("residual around the MLP missing", "residual", ["mlp.out"]),
        ("residual around the MLP from the norm", "residual", ["mlp_norm", "mlp.out"]),
    ],
)
def test_residuals(key: str, point: str, parts: list[str]) -> None:
    points = wrong_run(key)
    expected = sum(points[f"blocks.1.{part}"] for part in parts)
    np.testing.assert_allclose(points[f"blocks.1.{point}"], expected, rtol=1e-12)


def test_in_parallel_both_norms_read_the_blocks_input() -> None:
    points = wrong_run("MLP beside attention")
    v = right_variant(LLAMA_SMALL)
    a, m = (v.read(f"blocks.1.{name}.weight").astype(np.float64) for name in ("attn_norm", "mlp_norm"))
    np.testing.assert_allclose(points["blocks.1.mlp_norm"] / m, points["blocks.1.attn_norm"] / a, rtol=1e-9)


@pytest.mark.parametrize(("words", "scale"), [("sqrt(d)", math.sqrt(32)), ("1/2", 0.5)])
def test_only_tokens_are_scaled_not_positions(words: str, scale: float) -> None:
    v = right_variant(GPT2_SMALL)
    embed = run(v.with_faults(fault_of(GPT2_SMALL, f"embedding scaled by {words}")))["embed"]
    tokens, rows = (v.read(f"{name}.weight").astype(np.float64) for name in ("embed", "pos_embed"))
    np.testing.assert_allclose(embed, scale * tokens[v.batch.ids] + rows[:12], rtol=1e-9, atol=1e-12)


LOGITS: dict[str, Callable[[Any], Any]] = {
    "logits as capped at 30": lambda x: 30.0 * np.tanh(x / 30.0),
    "logits as softmax": lambda x: np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True),
    "logits as log softmax": lambda x: x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True)),
    "logits scaled by sqrt(d)": lambda x: x * math.sqrt(32),
}


@pytest.mark.parametrize("key", LOGITS)
def test_logits(key: str) -> None:
    right = run(right_variant(LLAMA_SMALL))["logits"]
    np.testing.assert_allclose(wrong_run(key)["logits"], LOGITS[key](right), rtol=1e-8, atol=1e-10)
