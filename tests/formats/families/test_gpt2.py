"""GPT-2: class defaults, tensor names, buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinyxp import Config
from tinyxp.formats.families.gpt2 import GPT2

from .defaults import names, read


def test_defaults_are_gpt2_small() -> None:
    assert read("gpt2") == Config.preset("gpt2")
    assert read("gpt2", n_embd=24, n_head=2) == replace(
        Config.preset("gpt2"), d_model=24, n_heads=2, n_kv_heads=2, head_dim=12, d_ff=96
    )
    assert read("gpt2", n_embd=24, n_head=2, n_inner=5).d_ff == 5


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="^n_head is 7; it must divide n_embd, 768$"):
        read("gpt2", n_head=7)


def test_names() -> None:
    tensors = names("gpt2")
    assert tensors["transformer.h.0.attn.c_attn.bias"] == tuple(f"blocks.0.attn.{x}.bias" for x in "qkv")
    assert tensors["transformer.wpe.weight"] == ("pos_embed.weight",)
    assert "lm_head.weight" not in tensors
    assert names("gpt2", tie_word_embeddings=False)["lm_head.weight"] == ("head.weight",)
    assert len(tensors) == 2 + 2 + 12


@pytest.mark.parametrize(
    "name, is_buffer",
    [
        ("h.0.attn.bias", True),
        ("h.11.attn.masked_bias", True),
        ("h.0.attn.c_attn.bias", False),
        ("h.x.attn.bias", False),
        ("h.0.mlp.bias", False),
    ],
)
def test_buffers(name: str, is_buffer: bool) -> None:
    assert bool(GPT2.buffers.fullmatch(name)) is is_buffer
