"""Reversible steps: the order of rows by hand, and that saving inverts loading."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp import Config
from tinyxp.formats.steps import Step, Transpose, Unpermute, transpose, unpermute_keys, unpermute_queries

MATRIX = np.arange(12 * 5).reshape(12, 5)


@pytest.mark.parametrize("step", [Transpose(), Unpermute(2), Unpermute(3)])
def test_saving_inverts_loading(step: Step) -> None:
    stored = step.save(MATRIX)
    assert not np.array_equal(stored, MATRIX)
    assert stored.shape == step.file_shape(MATRIX.shape)
    assert np.array_equal(step.load(stored), MATRIX)
    assert np.array_equal(step.save(step.load(MATRIX)), MATRIX)


def test_transpose_swaps_the_axes() -> None:
    assert Transpose().load(MATRIX).shape == (5, 12)
    assert Transpose().load(MATRIX)[3, 7] == MATRIX[7, 3]


def test_the_rows_of_a_head_are_stored_in_pairs() -> None:
    stored = [0, 4, 1, 5, 2, 6, 3, 7]
    assert Unpermute(1).save(np.arange(8)).tolist() == stored
    two_heads = [*stored, *(8 + row for row in stored)]
    assert Unpermute(2).save(np.arange(16)).tolist() == two_heads
    assert Unpermute(2).load(np.array(two_heads)).tolist() == list(range(16))


def test_steps_are_described() -> None:
    assert [str(Transpose()), str(Unpermute(9))] == ["transposed", "rows un-permuted, 9 heads"]


def test_steps_of_a_config() -> None:
    config = Config(n_heads=6, n_kv_heads=3, head_dim=4)
    assert transpose(config) == Transpose()
    assert unpermute_queries(config) == Unpermute(6)
    assert unpermute_keys(config) == Unpermute(3)
    assert not Transpose().changes_biases
    assert Unpermute(6).changes_biases
