"""What faults of attention compute, by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import PADDED, Points, fault_of, right_variant, run

QUERY, KEY = np.arange(12)[:, None], np.arange(12)[None, :]
REAL = PADDED.real[:, None, None, :]
CAUSAL = KEY <= QUERY


def wrong_run(key: str) -> Points:
    return run(right_variant(LLAMA_SMALL, PADDED).with_faults(fault_of(LLAMA_SMALL, key)))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    y: np.ndarray = e / np.sum(e, axis=axis, keepdims=True)
    return y


MASKS: dict[str, Any] = {
    "no causal mask": np.ones((12, 12), bool) & REAL,
    "mask one ahead": (KEY <= QUERY + 1) & REAL,
    "mask of the future": (KEY >= QUERY) & REAL,
    "padding not masked": CAUSAL & np.ones_like(REAL),
    "mask off by one": (KEY < QUERY) & REAL,
    "mask inverted": ~(CAUSAL & REAL),
}


@pytest.mark.parametrize("key", MASKS)
def test_masks(key: str) -> None:
    points = wrong_run(key)
    scores, weights = (points[f"blocks.0.attn.{name}"] for name in ("scores", "weights"))
    sees = np.broadcast_to(MASKS[key], (2, 1, 12, 12))
    some = np.broadcast_to(sees.any(axis=-1), (2, 4, 12))
    expected = softmax(np.where(sees, scores, -1e300))
    np.testing.assert_allclose(weights[some], expected[some], atol=1e-12)
    lost = ~some & np.broadcast_to(PADDED.real[:, None], some.shape)
    assert np.isnan(weights[lost]).all()  # a token that sees nothing


@pytest.mark.parametrize("fill", [-1e9, -100.0, -10.0, 0.0])
def test_masked_scores_that_are_filled(fill: float) -> None:
    points = wrong_run("mask off by one (filled with -1e9)" if fill == -1e9 else f"masked with {fill:g}")
    sees = (KEY < QUERY if fill == -1e9 else CAUSAL) & REAL
    expected = softmax(np.where(sees, points["blocks.0.attn.scores"], fill))
    np.testing.assert_allclose(points["blocks.0.attn.weights"], expected, atol=1e-12)


SOFTMAX: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mask after the softmax": lambda scores, sees: np.where(sees, softmax(scores), 0.0),
    "boolean mask added": lambda scores, sees: softmax(scores + sees),
    "softmax over queries": lambda scores, sees: softmax(np.where(sees, scores, -1e300), axis=-2),
}


@pytest.mark.parametrize("key", SOFTMAX)
def test_softmax(key: str) -> None:
    points = wrong_run(key)
    expected = SOFTMAX[key](points["blocks.0.attn.scores"], CAUSAL & REAL)[1]  # without padding
    np.testing.assert_allclose(points["blocks.0.attn.weights"][1], expected, atol=1e-12)


def cut(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(2, 12, heads, -1).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("key", "groups", "scale"),
    [
        ("kv heads tiled", [0, 1, 0, 1], 8**-0.5),
        ("first kv head for all", [0, 0, 0, 0], 8**-0.5),
        ("kv heads of the next group", [1, 1, 0, 0], 8**-0.5),
        ("scores not scaled", [0, 0, 1, 1], 1.0),
        ("scores scaled by 1/hd", [0, 0, 1, 1], 1 / 8),
        ("scores scaled by 1/sqrt(d)", [0, 0, 1, 1], 32**-0.5),
        ("scores multiplied by sqrt(hd)", [0, 0, 1, 1], 8**0.5),
    ],
)
def test_scores_and_heads(key: str, groups: list[int], scale: float) -> None:
    points = wrong_run(key)
    q, k = (points[f"blocks.0.attn.{name}_rotated"] for name in "qk")
    scores = q @ k[:, groups].swapaxes(-1, -2) * scale
    np.testing.assert_allclose(points["blocks.0.attn.scores"], scores, atol=1e-9)
    heads = points["blocks.0.attn.weights"] @ cut(points["blocks.0.attn.v"], 2)[:, groups]
    joined = heads.swapaxes(1, 2).reshape(2, 12, 32)
    np.testing.assert_allclose(points["blocks.0.attn.heads"], joined, atol=1e-9)


def test_heads_that_are_reshaped_alone() -> None:
    points = wrong_run("heads cut without transposing")
    values = points["blocks.0.attn.v"].reshape(2, 2, 12, 8)[:, [0, 0, 1, 1]]
    heads = (points["blocks.0.attn.weights"] @ values).swapaxes(1, 2).reshape(2, 12, 32)
    np.testing.assert_allclose(points["blocks.0.attn.heads"], heads, atol=1e-9)
    points = wrong_run("heads joined without transposing")
    right = points["blocks.0.attn.weights"] @ cut(points["blocks.0.attn.v"], 2)[:, [0, 0, 1, 1]]
    np.testing.assert_allclose(points["blocks.0.attn.heads"], right.reshape(2, 12, 32), atol=1e-9)


def test_another_number_of_heads() -> None:
    assert wrong_run("8 heads for 4")["blocks.0.attn.weights"].shape == (2, 8, 12, 12)
    assert wrong_run("2 heads for 4")["blocks.0.attn.k_rotated"].shape == (2, 1, 12, 16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tf32"])
def test_products_of_few_digits_are_near_the_right_ones(dtype: str) -> None:
    right = run(right_variant(LLAMA_SMALL, PADDED))["blocks.0.attn.q"]
    wrong = wrong_run(f"products in {dtype}")["blocks.0.attn.q"]
    error = np.sqrt(np.mean((wrong - right) ** 2) / np.mean(right**2))
    assert 1e-5 < error < 1e-2
