"""Attention weights, rotary angles and position vectors, against the trace and against NumPy by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tinyxp
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.measure_attention import attention_weights, position_similarity, rotary_angles

from .forward_passes import LONG_IDS, make_backend_run, make_run
from .test_forward_pass import softmax


def test_attention_with_and_without_the_mask(run: ForwardPass) -> None:
    for layer in range(run.params.config.n_layers):
        weights, unmasked, future = attention_weights(run, layer)
        scores = run.points[f"blocks.{layer}.attn.scores"][0].astype(float)
        assert np.array_equal(weights, run.points[f"blocks.{layer}.attn.weights"][0])
        np.testing.assert_allclose(unmasked, softmax(scores), atol=1e-7)
        later = np.triu(np.ones((7, 7), dtype=bool), 1)
        np.testing.assert_allclose(future, [x[later].sum() / 7 for x in softmax(scores)], atol=1e-6)
        assert not np.allclose(unmasked[:, later], 0.0)


def test_angles_rotate_the_model_s_own_queries() -> None:
    """An angle is what happened to its pair between q and q_rotated."""
    run = make_run("llama")
    pairs, frequencies, angles = rotary_angles(run)
    assert pairs == [0, 1, 2, 3]
    np.testing.assert_allclose(frequencies, [1.0, 0.1, 0.01, 0.001])
    assert angles.shape == (4, 64, 2)
    q = run.point("blocks.0.attn.q").reshape(7, 4, 8).swapaxes(0, 1)
    rotated = run.point("blocks.0.attn.q_rotated")
    for k, pair in enumerate(pairs):
        cos, sin = angles[k, :7].T
        np.testing.assert_allclose(rotated[..., pair], q[..., pair] * cos - q[..., pair + 4] * sin, atol=1e-6)


def test_similarity_is_the_cosine_of_two_rows() -> None:
    run = make_run("gpt2")
    rows = np.asarray(run.params["pos_embed.weight"], dtype=float)[:7]
    similarity = position_similarity(run)
    assert similarity[2, 5] == pytest.approx(
        rows[2] @ rows[5] / math.sqrt(rows[2] @ rows[2] * (rows[5] @ rows[5]))
    )
    np.testing.assert_allclose(np.diag(similarity), 1.0)


def test_a_long_sequence_keeps_its_last_weights_and_all_angles() -> None:
    run = make_run("llama", LONG_IDS, str)
    weights, unmasked, _ = attention_weights(run, 0)
    assert np.array_equal(weights, run.points["blocks.0.attn.weights"][0][:, 26:, 26:])
    assert unmasked.shape == (4, 64, 64)
    assert (unmasked.sum(axis=-1) < 1.0).all()
    assert rotary_angles(run)[2].shape == (4, 90, 2)


def test_every_backend_gives_the_same_numbers(backend: tinyxp.Backend) -> None:
    run, expected = make_backend_run(backend), make_run("llama")
    for x, y in zip(attention_weights(run, 1), attention_weights(expected, 1), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    np.testing.assert_allclose(rotary_angles(run)[2], rotary_angles(expected)[2], atol=1e-5)
