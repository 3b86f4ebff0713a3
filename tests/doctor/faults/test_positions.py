"""What faults of positions compute, by their formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import PADDED, fault_of, right_variant, run
from tinyxp import Config
from tinyxp.doctor.faults.positions import rotated_width, to_halves, to_pairs


def rotated(key: str, config: Config = LLAMA_SMALL) -> tuple[np.ndarray, np.ndarray]:
    """q of block 0 before and after the faulty rotation, each (b, h, t, hd)."""
    points = run(right_variant(config).with_faults(fault_of(config, key)))
    q = points["blocks.0.attn.q"]
    b, t, _ = q.shape
    before = q.reshape(b, t, config.n_heads, config.head_dim).swapaxes(1, 2)
    return before, points["blocks.0.attn.q_rotated"]


def turn(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Halves rotated by angles (t, hd/2)."""
    half = x.shape[-1] // 2
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], axis=-1)


def angles(base: float = 1e4, hd: int = 8, start: int = 0, t: int = 12) -> np.ndarray:
    return (start + np.arange(t))[:, None] * base ** (-2.0 * np.arange(hd // 2) / hd)


@pytest.mark.parametrize(
    ("key", "by"),
    [
        ("theta 500000", angles(5e5)),
        ("exponent i/hd", np.arange(12)[:, None] * 1e4 ** (-np.arange(4) / 8)),
        ("exponent 2i/d", np.arange(12)[:, None] * 1e4 ** (-2.0 * np.arange(4) / 32)),
        ("rotation the other way", -angles()),
        ("rotated twice", 2.0 * angles()),
        ("linear scaling by 4", angles() / 4.0),
        ("positions off by +1", angles(start=1)),
        ("queries not rotated", 0.0 * angles()),
        ("cos and sin swapped", np.pi / 2.0 - angles()),
    ],
)
def test_angles(key: str, by: np.ndarray) -> None:
    before, after = rotated(key)
    np.testing.assert_allclose(after, turn(before, by), rtol=1e-9, atol=1e-9)


def test_pairs() -> None:
    before, after = rotated("neighbour pairing")
    np.testing.assert_allclose(to_halves(after), turn(to_halves(before), angles()), atol=1e-9)
    assert np.array_equal(to_pairs(to_halves(before)), before)
    before, after = rotated("table of the other pairing (half, repeated)")
    columns = np.repeat(angles(), 2, axis=-1)  # one angle for each number of a head
    a, b = before[..., :4], before[..., 4:]
    first, second = columns[:, :4], columns[:, 4:]
    expected = [a * np.cos(first) - b * np.sin(first), b * np.cos(second) + a * np.sin(second)]
    np.testing.assert_allclose(after, np.concatenate(expected, axis=-1), atol=1e-9)
    before, after = rotated("table of the other pairing (neighbour, joined)")
    a, b = before[..., 0::2], before[..., 1::2]
    columns = np.concatenate([angles(), angles()], axis=-1)
    first, second = columns[:, 0::2], columns[:, 1::2]
    np.testing.assert_allclose(after[..., 0::2], a * np.cos(first) - b * np.sin(first), atol=1e-9)
    np.testing.assert_allclose(after[..., 1::2], b * np.cos(second) + a * np.sin(second), atol=1e-9)


def test_a_part_of_each_head() -> None:
    before, after = rotated("only 0.5 of each head rotated")
    np.testing.assert_allclose(after[..., :4], turn(before[..., :4], angles(hd=4)), atol=1e-9)
    assert np.array_equal(after[..., 4:], before[..., 4:])
    assert [rotated_width(hd, 0.25) for hd in (8, 12, 4, 10)] == [2, 2, 0, 2]
    assert rotated_width(20, 0.5) == 10
    assert rotated_width(10, 0.5) == 0  # 4 does not divide 10


def test_values_are_rotated_as_keys_are() -> None:
    points = run(right_variant(LLAMA_SMALL).with_faults(fault_of(LLAMA_SMALL, "values rotated")))
    v = points["blocks.0.attn.v"].reshape(2, 12, 2, 8).swapaxes(1, 2)
    values = np.repeat(turn(v, angles()), 2, axis=1)
    heads = (points["blocks.0.attn.weights"] @ values).swapaxes(1, 2).reshape(2, 12, 32)
    np.testing.assert_allclose(points["blocks.0.attn.heads"], heads, atol=1e-9)


def test_column_numbers_for_positions() -> None:
    config = replace(GPT2_SMALL, max_seq_len=12)
    v = right_variant(config, PADDED)
    embed = run(v.with_faults(fault_of(config, "positions not counted from the mask")))["embed"]
    tokens, table = (v.read(f"{name}.weight").astype(np.float64) for name in ("embed", "pos_embed"))
    np.testing.assert_allclose(embed, tokens[PADDED.ids] + table[:12], rtol=1e-12)
    beyond = run(v.with_faults(fault_of(config, "positions off by +2")))["embed"]
    np.testing.assert_allclose(beyond[1, -1], tokens[PADDED.ids[1, -1]] + table[-1], rtol=1e-12)
