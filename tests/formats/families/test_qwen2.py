"""Qwen2: class defaults, biases of q, k and v, and windows layer by layer."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp import Config, UnsupportedModelError

from .defaults import names, read

ON: dict[str, Any] = {"use_sliding_window": True, "num_hidden_layers": 2}


def test_defaults_are_those_of_the_class() -> None:
    assert read("qwen2") == Config(
        vocab_size=151936,
        n_layers=32,
        d_model=4096,
        n_heads=32,
        n_kv_heads=32,
        d_ff=22016,
        max_seq_len=32768,
        norm_eps=1e-6,
        attn_bias=True,
    )


def test_the_first_28_layers_have_no_window() -> None:
    assert read("qwen2", use_sliding_window=True, num_hidden_layers=28).n_layers == 28
    with pytest.raises(UnsupportedModelError, match="sliding_window is 4096"):
        read("qwen2", use_sliding_window=True, num_hidden_layers=29)


def test_biases_of_q_k_and_v() -> None:
    assert [name for name in names("qwen2") if name.endswith(".bias")] == [
        f"model.layers.0.self_attn.{x}_proj.bias" for x in "qkv"
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"max_window_layers": 1},
        {"layer_types": ["full_attention", "sliding_attention"], "max_window_layers": 9},
    ],
)
def test_a_layer_with_a_window_is_rejected(keys: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window is 4096"):
        read("qwen2", **ON, **keys)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"max_window_layers": 2},
        {"layer_types": ["full_attention"] * 2, "max_window_layers": 0},
        {"sliding_window": None, "max_window_layers": 0},
    ],
)
def test_a_window_that_no_layer_has_is_taken(keys: dict[str, Any]) -> None:
    assert read("qwen2", **ON, **keys) == read("qwen2", num_hidden_layers=2)
