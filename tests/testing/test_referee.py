"""The referee, held to numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinyxp import Config
from tinyxp.config import RopeScaling
from tinyxp.testing import referee


def test_a_quarter_turn_swaps_the_halves() -> None:
    config = Config(head_dim=4, rope_theta=1.0)  # every pair turns by one radian per position
    x = np.array([1.0, 2.0, 3.0, 4.0])
    c, s = math.cos(2.0), math.sin(2.0)
    expected = [c - 3 * s, 2 * c - 4 * s, 3 * c + s, 4 * c + 2 * s]
    np.testing.assert_allclose(referee.rotate(x, 2, config), expected, rtol=1e-14)


def test_frequencies_fall_with_the_pair_and_linear_scaling_divides_them() -> None:
    config = Config(head_dim=4, rope_theta=100.0)
    assert [referee.rope_frequency(i, config) for i in (0, 1)] == [1.0, 0.1]
    slow = Config(head_dim=4, rope_theta=100.0, rope_scaling=RopeScaling(rope_type="linear", factor=4.0))
    assert referee.rope_frequency(1, slow) == pytest.approx(0.025)


def test_norms_of_a_small_row() -> None:
    w = {"n.weight": np.array([1.0, 2.0]), "n.bias": np.array([0.0, 10.0])}
    np.testing.assert_allclose(
        referee.rms_norm(np.array([3.0, 4.0]), w, "n", 0.0), [0.6 * 2**0.5, 1.6 * 2**0.5]
    )
    np.testing.assert_allclose(referee.layer_norm(np.array([3.0, 5.0]), w, "n", 0.0), [-1.0, 12.0])


def test_one_token_sees_only_itself() -> None:
    config = Config(n_heads=2, n_kv_heads=1, head_dim=2, d_model=4)
    v = np.array([[5.0, 7.0]])
    mixed = referee.attend(np.ones((2, 2)), [(np.ones((1, 2)), v)], config)
    np.testing.assert_array_equal(mixed, [5.0, 7.0, 5.0, 7.0])


@pytest.mark.parametrize("name, at_1", [("swiglu", 0.7310586), ("gelu", 0.8413447), ("relu2", 1.0)])
def test_activations(name: str, at_1: float) -> None:
    assert referee.ACTIVATIONS[name](1.0) == pytest.approx(at_1, abs=1e-7)
    assert abs(referee.ACTIVATIONS[name](-20.0)) < 1e-7
