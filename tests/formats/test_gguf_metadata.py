"""GGUF metadata -> Config: rotary scaling, what changes nothing, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.config import RopeScaling
from tinyxp.formats import describe
from tinyxp.rope import rope_frequencies

from .files import Write, metadata_of, to_gguf


def factors_of(config: Config) -> np.ndarray:
    plain = np.array(rope_frequencies(replace(config, rope_scaling=None)))
    return (plain / np.array(rope_frequencies(config))).astype(np.float32)


@pytest.mark.parametrize(
    "scaling, head_dim, theta",
    [
        ({"rope_type": "llama3", "factor": 32.0}, 64, 5e5),  # Llama 3.2
        ({"rope_type": "llama3", "factor": 8.0}, 128, 5e5),  # Llama 3.1
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 16.0}, 128, 5e5),
        ({"rope_type": "llama3", "factor": 3.3, "low_freq_factor": 0.7, "high_freq_factor": 9.1}, 64, 1e5),
        ({"rope_type": "linear", "factor": 4.0}, 8, 1e4),
    ],
)
def test_scaling_is_derived_from_rope_freqs(
    scaling: dict[str, Any],
    head_dim: int,
    theta: float,
    write_gguf: Write,
    draw: Callable[..., Params],
    sizes: dict[str, Any],
    tmp_path: Path,
) -> None:
    config = Config(**sizes, head_dim=head_dim, rope_theta=theta, rope_scaling=RopeScaling(**scaling))
    params = draw(config)
    tensors = to_gguf(params, "llama") | {"rope_freqs.weight": factors_of(config)}
    metadata = metadata_of(config, "llama") | {
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    assert tinyxp.load(path).config == config
    assert {i.name: i.steps for i in describe(path)}["rope_freqs.weight"] == ("skipped: became rope_scaling",)


def test_scaling_of_another_form_is_refused(
    write_gguf: Write, llama: Params, draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    config = Config(**sizes, head_dim=64)
    params = draw(config)
    metadata = metadata_of(config, "llama") | {"attention.key_length": 64, "attention.value_length": 64}
    good = factors_of(replace(config, rope_scaling=RopeScaling(rope_type="llama3", factor=8.0)))
    bent = good.copy()
    bent[np.flatnonzero((good > 1) & (good < 8))[0]] *= 1.001
    for bad in (bent, good[:-1], good * np.float32(0.5), np.full(32, np.nan, np.float32), good[::-1].copy()):
        path = write_gguf(
            tmp_path / "m.gguf", "llama", metadata, to_gguf(params, "llama") | {"rope_freqs.weight": bad}
        )
        with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight"):
            tinyxp.load(path)


def test_scaling_of_a_bad_length(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.array([1, 2, 4], np.float32)}
    metadata = metadata_of(llama.config, "llama") | {"rope.scaling.original_context_length": "many"}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    with pytest.raises(
        CheckpointError, match=r"m\.gguf: llama\.rope\.scaling\.original_context_length is 'many'"
    ):
        tinyxp.load(path)


def test_scaling_must_be_float32(write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.ones(3, np.float16)}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(llama.config, "llama"), tensors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight has dtype F16"):
        tinyxp.load(path)


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
    extra: dict[str, Any], scaling: RopeScaling | None, write_gguf: Write, llama: Params, tmp_path: Path
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
def test_metadata_that_is_refused(
    key: str, value: Any, write_gguf: Write, llama: Params, tmp_path: Path
) -> None:
    metadata = metadata_of(llama.config, "llama") | {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(UnsupportedModelError, match=f"llama.{key} is "):
        tinyxp.load(path)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "context_length"])
@pytest.mark.parametrize("value", [None, 0, "many", 1.5])
def test_bad_metadata(key: str, value: Any, write_gguf: Write, llama: Params, tmp_path: Path) -> None:
    metadata = {k: v for k, v in metadata_of(llama.config, "llama").items() if k != key}
    metadata |= {} if value is None else {key: value}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, to_gguf(llama, "llama"))
    with pytest.raises(CheckpointError, match=rf"m\.gguf: llama\.{key} is"):
        tinyxp.load(path)
