"""Names and shapes of the parameters that a config asks for, and their counts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.reference import GPT2_CONFIG, LLAMA_CONFIG
from tinyxp import Config, count_parameters, init
from tinyxp.config import GPT2

LAYER_SHAPES = {
    "embed.weight": (11, 8),
    "pos_embed.weight": (16, 8),
    "blocks.0.attn_norm.weight": (8,),
    "blocks.0.attn_norm.bias": (8,),
    "blocks.0.attn.q.weight": (8, 8),
    "blocks.0.attn.q.bias": (8,),
    "blocks.0.attn.k.weight": (8, 8),
    "blocks.0.attn.k.bias": (8,),
    "blocks.0.attn.v.weight": (8, 8),
    "blocks.0.attn.v.bias": (8,),
    "blocks.0.attn.o.weight": (8, 8),
    "blocks.0.attn.o.bias": (8,),
    "blocks.0.mlp_norm.weight": (8,),
    "blocks.0.mlp_norm.bias": (8,),
    "blocks.0.mlp.up.weight": (32, 8),
    "blocks.0.mlp.up.bias": (32,),
    "blocks.0.mlp.down.weight": (8, 32),
    "blocks.0.mlp.down.bias": (8,),
    "final_norm.weight": (8,),
    "final_norm.bias": (8,),
}


GATED_SHAPES = {
    "embed.weight": (11, 8),
    "blocks.0.attn_norm.weight": (8,),
    "blocks.0.attn.q.weight": (24, 8),
    "blocks.0.attn.k.weight": (12, 8),
    "blocks.0.attn.v.weight": (12, 8),
    "blocks.0.attn.o.weight": (8, 24),
    "blocks.0.mlp_norm.weight": (8,),
    "blocks.0.mlp.gate.weight": (12, 8),
    "blocks.0.mlp.up.weight": (12, 8),
    "blocks.0.mlp.down.weight": (8, 12),
    "final_norm.weight": (8,),
    "head.weight": (11, 8),
}


@pytest.mark.parametrize(
    "config, shapes",
    [
        (replace(GPT2_CONFIG, n_layers=1), LAYER_SHAPES),
        (replace(LLAMA_CONFIG, n_layers=1, head_dim=12), GATED_SHAPES),
    ],
)
def test_names_and_shapes(config: Config, shapes: dict[str, tuple[int, ...]]) -> None:
    params = init(config)
    assert {name: x.shape for name, x in params.items()} == shapes
    assert len(params) == len(shapes)
    assert params.config is config


@pytest.mark.parametrize(
    "config, expected",
    [
        (
            Config(),
            {"embed": 4096, "pos_embed": 0, "attention": 6144, "mlp": 12288, "norm": 160, "head": 4096}
            | {"total": 26784},
        ),
        (
            Config.preset("gpt2"),
            {"embed": 38597376, "pos_embed": 786432, "attention": 28348416, "mlp": 56669184, "norm": 38400}
            | {"head": 0, "total": 124439808},
        ),
    ],
)
def test_counts_by_group(config: Config, expected: dict[str, int]) -> None:
    assert count_parameters(config) == expected


def test_counts_in_total() -> None:
    toy = Config(**GPT2, vocab_size=4, max_seq_len=3, d_model=2, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=8)
    totals = {
        92: toy,
        100: replace(toy, tie_embeddings=False),
        163037184: Config.preset("gpt2-untied"),
        134515008: Config.preset("smollm2-135m"),
        494032768: Config.preset("qwen2-0.5b"),
    }
    for total, config in totals.items():
        assert count_parameters(config)["total"] == total
    one, none = (count_parameters(replace(Config.preset("gpt2"), n_layers=n))["total"] for n in (2, 1))
    assert one - none == 7087872


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        GPT2_CONFIG,
        replace(GPT2_CONFIG, tie_embeddings=False),
        Config(attn_bias=True),
        Config(attn_out_bias=True, n_kv_heads=1),
        Config(mlp_bias=True, head_dim=10),
        Config(mlp="gelu", mlp_bias=True),
        Config(norm="layer", position="learned", tie_embeddings=True),
    ],
)
def test_the_closed_form_counts_what_is_there(config: Config) -> None:
    counts = count_parameters(config)
    groups = dict.fromkeys(counts, 0)
    for name, x in init(config).items():
        for group, part in {
            "embed": "embed.",
            "pos_embed": "pos_embed.",
            "attention": ".attn.",
            "mlp": ".mlp.",
            "norm": "norm.",
            "head": "head.",
        }.items():
            if name.startswith(part) or (part[0] in ".n" and part in name):
                groups[group] += math.prod(x.shape)
        groups["total"] += math.prod(x.shape)
    assert counts == groups
