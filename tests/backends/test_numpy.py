"""NumPy's adapter: whose arrays they are, and which of them are rows of one array."""

from __future__ import annotations

import numpy as np

import tinyxp

BACKEND = tinyxp.backend("numpy")


def test_reductions_are_arrays_too() -> None:
    assert BACKEND.is_array(np.zeros(3).sum())
    assert not BACKEND.is_array([1.0])
    assert not BACKEND.is_array(1.0)


def test_capabilities() -> None:
    assert BACKEND.has_views
    assert BACKEND.eager
    assert not BACKEND.compiles
    assert not BACKEND.has_gradients
    assert BACKEND.jit(len) is len


def test_adjacent_rows_are_one_array_without_a_copy() -> None:
    whole = np.arange(12.0).reshape(6, 2)
    joined = BACKEND.join_views([whole[:1], whole[1:4], whole[4:]])
    assert joined is not None
    assert np.array_equal(joined, whole)
    assert np.shares_memory(joined, whole)
    whole.flags.writeable = False
    read_only = BACKEND.join_views([whole[:2], whole[2:]])
    assert read_only is not None
    assert not read_only.flags.writeable


def test_rows_apart_are_not_joined() -> None:
    whole = np.arange(12.0).reshape(6, 2)
    assert BACKEND.join_views([whole[:2], whole[3:]]) is None
    assert BACKEND.join_views([whole[:3], whole[3:].copy()]) is None
    assert BACKEND.join_views([whole[::2], whole[1::2]]) is None
