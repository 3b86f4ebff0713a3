"""forward: causality, positions, ids of every kind, results."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    FLOAT32,
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    alone,
    array,
    compiled,
    distance,
    drawn,
    filled,
    float64_on,
    host,
    libraries,
    padded,
)
from tinyxp import Config, Params, forward, loss


def test_the_future_does_not_matter(params: Params) -> None:
    changed = [[3, 1, 4, 8, 0]]
    before, after = host(forward(params, IDS)), host(forward(params, changed))
    assert distance(before[:, :3], after[:, :3]) <= 1e-6
    assert distance(before[:, 3:], after[:, 3:]) > 0.1


def test_the_past_does(params: Params) -> None:
    before, after = host(forward(params, IDS)), host(forward(params, [[2, 1, 4, 1, 5]]))
    assert (np.abs(before - after).max(-1) > 1e-4).all()


def test_positions_default_to_counting(params: Params) -> None:
    logits = host(forward(params, IDS))
    for positions in ([[0, 1, 2, 3, 4]], np.arange(5)[None]):
        assert distance(forward(params, IDS, positions=positions), logits) <= FLOAT32


def test_positions_of_each_row(params: Params) -> None:
    """Left padding without its positions costs 1.41 on GPT-2, and rows may differ."""
    positions = [[0, 1, 2, 3, 4], [4, 9, 5, 7, 6]]
    logits = host(forward(params, IDS * 2, positions=positions))
    assert distance(logits[0], alone(params.config, IDS[0])) <= FLOAT32
    truth = forward(filled(params.config), IDS, positions=positions[1:])
    assert distance(logits[1], truth[0]) <= FLOAT32
    assert distance(truth[0], logits[0]) > 0.05


def test_one_row_of_positions_serves_all(params: Params) -> None:
    one = forward(params, IDS * 2, positions=[[1, 2, 3, 4, 5]])
    assert distance(one, forward(params, IDS * 2, positions=[[1, 2, 3, 4, 5]] * 2)) == 0.0


def test_learned_positions_are_looked_up(backend: tinyxp.Backend) -> None:
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    found = host(tinyxp.trace(params, IDS, positions=[[7, 0, 15, 3, 3]])["embed"])
    whole = filled(GPT2_CONFIG)
    expected = whole["embed.weight"][IDS[0]] + whole["pos_embed.weight"][[7, 0, 15, 3, 3]]
    assert distance(found[0], expected) <= 1e-6


def test_rotary_positions_are_relative(backend: tinyxp.Backend) -> None:
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="float32")
    moved = forward(params, IDS, positions=[[7, 8, 9, 10, 11]])
    assert distance(moved, alone(LLAMA_CONFIG, IDS[0])[None]) <= FLOAT32


def test_rotary_positions_go_on_beyond_max_seq_len(backend: tinyxp.Backend) -> None:
    short = replace(LLAMA_CONFIG, max_seq_len=3)
    params = Params(dict(filled(LLAMA_CONFIG)), short).to(backend.xp, dtype="float32")
    assert distance(forward(params, IDS), alone(LLAMA_CONFIG, IDS[0])[None]) <= FLOAT32


def test_positions_stay_apart_in_bfloat16(backend: tinyxp.Backend) -> None:
    """In bfloat16 only 641 of the first 2048 positions are distinct."""
    if "bfloat16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no bfloat16")
    params = filled(LLAMA_CONFIG).to(backend.xp, dtype="bfloat16")
    positions = [[2041, 2042, 2043, 2044, 2045]]
    points = tinyxp.trace(params, [[3] * 5], positions=positions)
    half = LLAMA_CONFIG.head_dim // 2
    q = host(points["blocks.0.attn.q"]).reshape(5, 2, 2 * half)
    z = q[..., :half] + 1j * q[..., half:]
    angles = np.asarray(positions[0])[:, None, None] * np.array([1.0, 0.01])
    z = z * np.exp(1j * angles)
    expected = np.concatenate([z.real, z.imag], -1).swapaxes(0, 1)
    # A handful of bfloat16 roundings of numbers below 1.
    assert distance(host(points["blocks.0.attn.q_rotated"])[0], expected) <= 0.015


def test_inverse_frequencies(backend: tinyxp.Backend) -> None:
    """At head_dim 8 and theta 1e4: 1, 0.1, 0.01, 0.001; read from what the model does at position 1."""
    params = drawn(Config()).to(backend.xp)
    points = compiled(backend, tinyxp.trace)(params, np.asarray(IDS))
    q = host(points["blocks.0.attn.q"]).reshape(5, 4, 8)[1]
    before, after = q, host(points["blocks.0.attn.q_rotated"])[0, :, 1]
    turned = (after[:, :4] + 1j * after[:, 4:]) / (before[:, :4] + 1j * before[:, 4:])
    np.testing.assert_allclose(np.angle(turned), [[1.0, 0.1, 0.01, 0.001]] * 4, atol=2e-6)


def test_rotary_tables_are_float64_in_a_float64_run(backend: tinyxp.Backend) -> None:
    with float64_on(backend):
        params = filled(LLAMA_CONFIG).to(backend.xp)
        points = tinyxp.trace(params, IDS, positions=[[100003, 5, 77777, 1, 0]])
        k = host(points["blocks.0.attn.k"])[0]
        z = (k[:, :2] + 1j * k[:, 2:]) * np.exp(
            1j * np.array([[100003.0], [5.0], [77777.0], [1.0], [0.0]]) * np.array([1.0, 0.01])
        )
        expected = np.concatenate([z.real, z.imag], -1)
        assert distance(host(points["blocks.0.attn.k_rotated"])[0, 0], expected) <= 1e-11


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
def test_ids_of_any_integer_dtype(params: Params, dtype: str) -> None:
    ids = np.asarray(IDS, dtype=dtype)
    expected = host(forward(params, IDS))
    assert np.array_equal(host(forward(params, ids)), expected)
    assert np.array_equal(host(forward(params, array(params.backend, ids))), expected)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_ids_of_any_library(params: Params, library: str) -> None:
    for dtype in ("int32", "uint8"):
        ids = array(tinyxp.backend(library), np.asarray(IDS, dtype=dtype))
        assert np.array_equal(host(forward(params, ids)), host(forward(params, IDS)))


def test_arguments_are_left_alone(params: Params) -> None:
    ids, mask = padded(IDS, [1], 6, [[0] * 6])
    there = array(params.backend, ids.copy()), array(params.backend, mask.copy())
    weights = {name: host(x).copy() for name, x in params.items()}
    forward(params, there[0], mask=there[1])
    assert np.array_equal(host(there[0]), ids)
    assert np.array_equal(host(there[1]), mask)
    assert all(np.array_equal(host(x), weights[name]) for name, x in params.items())


def test_results_are_arrays_of_the_library(params: Params) -> None:
    assert params.backend.is_array(forward(params, IDS))
    assert params.backend.is_array(loss(params, IDS, IDS))


def test_xp_converts_the_parameters(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    logits = forward(params, IDS, xp=backend.xp)
    assert backend.is_array(logits)
    assert distance(logits, forward(params, IDS)) <= FLOAT32
    assert abs(float(host(loss(params, IDS, IDS, xp=backend.xp))) - float(loss(params, IDS, IDS))) <= FLOAT32


def test_a_width_of_one_and_a_single_token(backend: tinyxp.Backend) -> None:
    config = Config(
        vocab_size=1, n_layers=1, d_model=2, n_heads=1, n_kv_heads=1, head_dim=2, d_ff=1, max_seq_len=1
    )
    params = drawn(config).to(backend.xp)
    ids = np.asarray([[0]])
    logits = compiled(backend, forward)(params, ids)
    assert tuple(logits.shape) == (1, 1, 1)
    assert math.isfinite(float(host(logits)[0, 0, 0]))
    assert float(host(compiled(backend, loss)(params, ids, ids))) == 0.0
