"""Rotary scaling in GGUF, from keys and from the table of factors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.config import RopeScaling
from tinyxp.formats import describe
from tinyxp.formats.gguf_rope import scaling_from_factors, shortest_decimal
from tinyxp.rope import rope_frequencies

from .files import SIZES, draw, metadata_of, to_gguf, write_gguf


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
    tmp_path: Path,
) -> None:
    config = Config(**SIZES, head_dim=head_dim, rope_theta=theta, rope_scaling=RopeScaling(**scaling))
    params = draw(config)
    tensors = to_gguf(params, "llama") | {"rope_freqs.weight": factors_of(config)}
    metadata = metadata_of(config, "llama") | {
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    assert tinyxp.load(path).config == config
    assert {i.name: i.steps for i in describe(path)}["rope_freqs.weight"] == ("skipped: became rope_scaling",)


def test_scaling_of_another_form_is_rejected(llama: Params, tmp_path: Path) -> None:
    config = Config(**SIZES, head_dim=64)
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


def test_scaling_of_a_bad_length(llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.array([1, 2, 4], np.float32)}
    metadata = metadata_of(llama.config, "llama") | {"rope.scaling.original_context_length": "many"}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata, tensors)
    with pytest.raises(
        CheckpointError, match=r"m\.gguf: llama\.rope\.scaling\.original_context_length is 'many'"
    ):
        tinyxp.load(path)


def test_one_factor_is_linear() -> None:
    config = Config(head_dim=2)
    linear = RopeScaling(rope_type="linear", factor=4.0)
    assert scaling_from_factors(config, np.array([4.0], np.float32), 64) == linear
    assert scaling_from_factors(config, np.array([1.0], np.float32), 64) is None


def test_the_shortest_decimal() -> None:
    assert shortest_decimal(float(np.float32(1e-5))) == 1e-5
    assert shortest_decimal(float(np.float32(0.1))) == 0.1
    assert shortest_decimal(5e5) == 5e5
