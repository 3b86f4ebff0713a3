"""Llama: class defaults, tensor names, buffers, widths."""

from __future__ import annotations

import pytest

from tinyxp import Config, UnsupportedModelError
from tinyxp.formats.families.llama import LLAMA

from .defaults import names, read


def test_defaults_are_those_of_the_class() -> None:
    assert read("llama") == Config(
        vocab_size=32000,
        n_layers=32,
        d_model=4096,
        n_heads=32,
        n_kv_heads=32,
        d_ff=11008,
        max_seq_len=2048,
        norm_eps=1e-6,
    )
    assert read("llama", head_dim=None).head_dim == 128
    assert read("llama", head_dim=6, num_attention_heads=5, num_key_value_heads=1).head_dim == 6


def test_heads_must_divide() -> None:
    with pytest.raises(ValueError, match="^num_attention_heads is 3; it must divide hidden_size, 4096$"):
        read("llama", num_attention_heads=3)
    with pytest.raises(
        ValueError, match="^num_key_value_heads is 5; it must divide num_attention_heads, 32$"
    ):
        read("llama", num_key_value_heads=5)


def test_a_window_is_taken_if_it_is_on_and_set() -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window is 2047"):
        read("llama", sliding_window=2047)
    assert read("llama", sliding_window=2048) == read("llama")
    assert read("llama", sliding_window=7, use_sliding_window=False) == read("llama")


def test_names() -> None:
    tensors = names("llama", attention_bias=True, mlp_bias=True)
    assert tensors["model.layers.0.self_attn.o_proj.bias"] == ("blocks.0.attn.o.bias",)
    assert tensors["model.layers.0.post_attention_layernorm.weight"] == ("blocks.0.mlp_norm.weight",)
    assert tensors["lm_head.weight"] == ("head.weight",)
    assert len(tensors) == 3 + 9 + 7


@pytest.mark.parametrize(
    "name, is_buffer",
    [
        ("rotary_emb.inv_freq", True),
        ("layers.10.self_attn.rotary_emb.inv_freq", True),
        ("layers.1.mlp.rotary_emb.inv_freq", False),
        ("norm.weight", False),
    ],
)
def test_buffers(name: str, is_buffer: bool) -> None:
    assert bool(LLAMA.buffers.fullmatch(name)) is is_buffer
