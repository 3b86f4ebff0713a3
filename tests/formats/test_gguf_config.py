"""GGUF metadata: what is read, what changes nothing, what is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.config import RopeScaling
from tinyxp.formats.gguf_config import config_from_gguf

from .files import metadata_of, to_gguf, write_gguf


@pytest.mark.parametrize(
    "extra, scaling",
    [
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            RopeScaling(rope_type="linear", factor=4.0),
        ),
        ({"rope.scale_linear": 2.0}, RopeScaling(rope_type="linear", factor=2.0)),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, None),
        ({"rope.dimension_count": 6, "attention.key_length": 6, "attention.value_length": 6}, None),
        ({"expert_count": 0, "expert_used_count": 0, "attention.sliding_window": 32}, None),
        ({"attention.head_count": [4, 4], "feed_forward_length": [20, 20]}, None),
        ({"attention.scale": 6**-0.5, "attention.causal": True, "logit_scale": 1.0}, None),
        ({"tokenizer.ggml.tokens": ["a", "b"], "general.quantization_version": 2}, None),
    ],
)
def test_metadata_that_is_taken(
    extra: dict[str, Any], scaling: RopeScaling | None, llama: Params, tmp_path: Path
) -> None:
    metadata = metadata_of(llama.config, "llama") | extra
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    assert tinyxp.load(path).config == replace(llama.config, rope_scaling=scaling)


@pytest.mark.parametrize(
    "key, value",
    [
        ("rope.scaling.type", "yarn"),
        ("rope.scaling.type", "longrope"),
        ("rope.dimension_count", 4),
        ("attention.value_length", 4),
        ("attention.sliding_window", 8),
        ("attention.scale", 1.0),
        ("attention.causal", False),
        ("expert_count", 8),
        ("expert_used_count", 2),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("logit_scale", 0.5),
        ("embedding_scale", 12.0),
        ("residual_scale", 0.22),
        ("attention.clamp_kqv", 8.0),
        ("attention.max_alibi_bias", 8.0),
        ("rope.scaling.attn_factor", 1.2),
        ("rope.dimension_sections", [2, 2, 2]),
        ("feed_forward_length", [20, 24]),
        ("attention.head_count_kv", [2, 1]),
    ],
)
def test_metadata_that_is_rejected(key: str, value: Any, llama: Params, tmp_path: Path) -> None:
    metadata = metadata_of(llama.config, "llama") | {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(UnsupportedModelError, match=f"llama.{key} is "):
        tinyxp.load(path)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "context_length"])
@pytest.mark.parametrize("value", [None, 0, "many", 1.5])
def test_bad_metadata(key: str, value: Any, llama: Params, tmp_path: Path) -> None:
    metadata = {k: v for k, v in metadata_of(llama.config, "llama").items() if k != key}
    metadata |= {} if value is None else {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(CheckpointError, match=rf"m\.gguf: llama\.{key} is"):
        tinyxp.load(path)


LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": 32,
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
SHAPES = {"token_embd.weight": (128, 32), "output.weight": (128, 32)}


def test_defaults_and_what_the_tensors_say() -> None:
    plain = Config(n_layers=1, n_kv_heads=4)
    assert config_from_gguf(LLAMA, SHAPES, None) == plain
    biased = SHAPES | {"blk.0.attn_q.bias": (32,), "blk.0.ffn_up.bias": (64,)}
    assert config_from_gguf(LLAMA, biased, None) == replace(plain, attn_bias=True, mlp_bias=True)
    tied = {"token_embd.weight": (128, 32), "blk.0.attn_output.bias": (32,)}
    assert config_from_gguf(LLAMA, tied, None) == replace(plain, attn_out_bias=True, tie_embeddings=True)
    larger = config_from_gguf(LLAMA | {"llama.vocab_size": 130}, SHAPES, None)
    assert larger.vocab_size == 130
    with pytest.raises(CheckpointError, match=r"^token_embd\.weight is missing$"):
        config_from_gguf(LLAMA, {}, None)


@pytest.mark.parametrize("value", [[4], 4])
def test_a_list_of_one_layer(value: Any) -> None:
    assert config_from_gguf(LLAMA | {"llama.attention.head_count": value}, SHAPES, None).n_heads == 4


@pytest.mark.parametrize("value", [[], [4, 4, 2], [2, 4, 4]])
def test_layers_that_differ(value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="llama.attention.head_count is .*: all layers are alike"):
        config_from_gguf(LLAMA | {"llama.attention.head_count": value}, SHAPES, None)


def test_limits_of_what_is_taken() -> None:
    for key, taken, rejected in (
        ("attention.sliding_window", 64, 63),
        ("attention.scale", 8**-0.5 * (1 + 5e-7), 8**-0.5 * (1 + 5e-6)),
        ("attention.key_length", 8, 10),
    ):
        config_from_gguf(LLAMA | {f"llama.{key}": taken}, SHAPES, None)
        if key != "attention.key_length":
            with pytest.raises(UnsupportedModelError, match=f"llama.{key} is"):
                config_from_gguf(LLAMA | {f"llama.{key}": rejected}, SHAPES, None)
        else:
            assert config_from_gguf(LLAMA | {f"llama.{key}": rejected}, SHAPES, None).head_dim == 10
    with pytest.raises(ValueError, match=r"attention\.head_count_kv is 3; it must divide .*, 4$"):
        config_from_gguf(LLAMA | {"llama.attention.head_count_kv": 3}, SHAPES, None)


def test_factors_beside_another_scaling() -> None:
    factors = np.full(4, 2.0, np.float32)
    assert config_from_gguf(LLAMA, SHAPES, factors).rope_scaling == RopeScaling(
        rope_type="linear", factor=2.0
    )
    linear = LLAMA | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    with pytest.raises(UnsupportedModelError, match="rope_freqs.weight is present beside rope.scaling.type"):
        config_from_gguf(linear, SHAPES, factors)
