"""torch's two mask conventions, in numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")


def weights_after(lines, heading):
    at = lines.index(heading)
    return np.array([[float(word) for word in line.split()[1:4]] for line in lines[at + 2 : at + 5]])


def test_one_mask_is_the_opposite_in_the_other(example, is_png):
    conventions = example("mask_conventions")
    look, hide = "scaled_dot_product_attention, True looks; mask ", "MultiheadAttention, True hides; mask "
    below, opposite = "True on and below the diagonal", "the opposite"
    causal = weights_after(conventions.lines, look + below)
    assert np.array_equal(np.triu(causal, 1), np.zeros((3, 3)))
    assert np.allclose(causal.sum(axis=1), 1, atol=2e-4)
    assert causal[0, 0] == 1
    assert np.array_equal(weights_after(conventions.lines, hide + opposite), causal)

    wrong = weights_after(conventions.lines, hide + below)
    assert np.array_equal(np.tril(wrong[:2]), np.zeros((2, 3)))  # the future alone
    assert np.isnan(wrong[2]).all()
    same = weights_after(conventions.lines, look + opposite)
    assert np.array_equal(same[:2], wrong[:2])
    assert np.array_equal(same[2], np.zeros(3))
    assert is_png(conventions.picture)

    found = SimpleNamespace(**conventions.globals)
    assert found.leak(found.ops.attention) == 0.0
    assert found.leak(found.inverted) > 0.05
