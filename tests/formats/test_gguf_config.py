"""GGUF metadata: what is read, what changes nothing, what is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tinyxp
from tinyxp import CheckpointError, Params, UnsupportedModelError
from tinyxp.config import RopeScaling

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
def test_metadata_that_is_refused(key: str, value: Any, llama: Params, tmp_path: Path) -> None:
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
