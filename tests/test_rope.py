"""Rotary frequencies and angles: the formula, its scalings, and what narrow dtypes need."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, host
from tinyxp import Config
from tinyxp.config import RopeScaling
from tinyxp.rope import rope_frequencies, rotation

PLAIN = Config(head_dim=16, rope_theta=500.0)


def test_frequencies_fall_geometrically_from_one() -> None:
    found = rope_frequencies(PLAIN)
    assert found[0] == 1.0
    assert found == pytest.approx([500.0 ** (-2 * i / 16) for i in range(8)], rel=1e-15)


def test_linear_scaling_divides_every_frequency() -> None:
    scaled = Config(head_dim=16, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4.0})
    assert rope_frequencies(scaled) == pytest.approx([f / 4.0 for f in rope_frequencies(PLAIN)], rel=1e-15)


def test_llama3_keeps_short_wavelengths_divides_long_ones_and_blends_between() -> None:
    scaling = RopeScaling(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=128
    )
    before = rope_frequencies(PLAIN)
    after = rope_frequencies(Config(head_dim=16, rope_theta=500.0, rope_scaling=scaling))
    turns = [128 * f / (2.0 * math.pi) for f in before]
    ratios = [a / b for a, b in zip(after, before, strict=True)]
    for ratio, turn in zip(ratios, turns, strict=True):
        expected = 1.0 if turn >= 4.0 else 1 / 8 if turn <= 1.0 else None
        if expected is not None:
            assert ratio == pytest.approx(expected, rel=1e-12)
        else:
            keep = (turn - 1.0) / 3.0
            assert ratio == pytest.approx(keep + (1.0 - keep) / 8.0, rel=1e-12)
    assert {1.0, 1 / 8} < {round(ratio, 12) for ratio in ratios}  # and one between


def test_angles_are_position_times_frequency(backend: tinyxp.Backend) -> None:
    xp = backend.xp
    positions = backend.from_numpy(np.asarray([[0, 1, 5], [7, 2, 0]]).astype(backend.index_dtype))
    found = rotation(PLAIN, positions, xp.float32, xp=xp, device=None)
    assert found is not None
    cos, sin = map(host, found)
    angles = np.asarray([[0, 1, 5], [7, 2, 0]])[:, None, :, None] * np.asarray(rope_frequencies(PLAIN))
    assert cos.shape == sin.shape == (2, 1, 3, 8)
    assert np.abs(cos - np.cos(angles)).max() <= 1e-6
    assert np.abs(sin - np.sin(angles)).max() <= 1e-6


@pytest.mark.parametrize(("dtype", "expected"), [("float16", "float32"), ("float64", "float64")])
def test_tables_are_float32_at_least(dtype: str, expected: str) -> None:
    cos, _ = rotation(PLAIN, np.asarray([[1000, 1001]]), np.dtype(dtype), xp=np, device=None) or (None, None)
    assert cos is not None
    assert cos.dtype == expected
    assert np.abs(np.diff(cos, axis=2)).max() > 1e-3  # neighbours do not coincide


def test_learned_positions_rotate_nothing() -> None:
    assert rotation(GPT2_CONFIG, np.asarray([[0]]), np.float32, xp=np, device=None) is None
