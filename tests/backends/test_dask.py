"""Dask's adapter: what its namespace lacks, and when it computes."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp

pytest.importorskip("dask.array")

BACKEND = tinyxp.backend("dask")


def test_uneven_chunks_reshape() -> None:
    x = BACKEND.xp.asarray(np.arange(30.0), chunks=7)
    y = BACKEND.xp.reshape(BACKEND.xp.reshape(x, (5, -1)), (3, 10))
    assert y.shape == (3, 10)
    assert np.array_equal(BACKEND.to_numpy(y), np.arange(30.0).reshape(3, 10))


def test_taking_along_an_axis() -> None:
    x, index = np.arange(12.0).reshape(3, 4), np.asarray([[3], [0], [2]])
    y = BACKEND.xp.take_along_axis(BACKEND.from_numpy(x), BACKEND.from_numpy(index), axis=1)
    assert np.array_equal(BACKEND.to_numpy(y), [[3.0], [4.0], [10.0]])


def test_synchronizing_computes() -> None:
    pending = BACKEND.from_numpy(np.ones(4)) + 1.0
    done = BACKEND.synchronize(pending)
    assert BACKEND.is_array(done)
    assert len(done.dask) < len(pending.dask)  # the addition is no longer in the graph
    assert np.array_equal(BACKEND.to_numpy(done), [2.0] * 4)
