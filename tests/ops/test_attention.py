"""Rotary positions, attention and writing into the cache: known values, on every backend."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import array, host, kind
from tinyxp import ops

# Rotary positions


def turn(backend: tinyxp.Backend, x: Any, angles: Any, dtype: str = "float32") -> np.ndarray:
    xp = backend.xp
    angles = array(backend, np.asarray(angles, dtype=float)[None, None], "float32")
    y = ops.rotary(array(backend, [[x]], dtype), xp.cos(angles), xp.sin(angles), xp=xp)
    assert kind(y) == dtype
    return host(y)[0, 0]


def test_rotary_pairs_halves(backend: tinyxp.Backend) -> None:
    y = turn(backend, [[1.0, 2.0, 3.0, 4.0]], [[1.0, 0.01]])
    np.testing.assert_allclose(y, [[-1.984111, 1.959901, 2.462378, 4.019800]], atol=1e-6)


def test_rotary_at_position_0_is_the_identity(backend: tinyxp.Backend) -> None:
    assert turn(backend, [[1.0, 2.0, 3.0, 4.0]], [[0.0, 0.0]]).tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_rotary_turns_each_pair_alone(backend: tinyxp.Backend) -> None:
    y = turn(backend, [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], [[math.pi / 2, 7.0], [7.0, math.pi / 2]])
    np.testing.assert_allclose(y, [[0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0]], atol=1e-6)


# Attention


def attend(
    backend: tinyxp.Backend, q: Any, k: Any, v: Any, visible: Any, dtype: str = "float32"
) -> tuple[np.ndarray, dict[str, Any]]:
    points: dict[str, Any] = {}

    def tap(name: str, x: Any, /) -> Any:
        points[name] = x
        return x

    q, k, v = (array(backend, x, dtype) for x in (q, k, v))
    heads = ops.attention(q, k, v, array(backend, visible), xp=backend.xp, tap=tap)
    assert kind(heads) == dtype
    return host(heads), points


def test_attention_values_and_taps(backend: tinyxp.Backend) -> None:
    q = [[[[2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]]]
    k = [[[[math.log(3.0), 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]]]]
    v = [[[[4.0, 0.0, 1.0, 0.0], [0.0, 8.0, 1.0, 0.0]]]]
    visible = [[[[True, False], [True, True]]]]
    heads, points = attend(backend, q, k, v, visible)
    # Scaled by 1/sqrt(4), the second query scores ln 3 and 0.
    np.testing.assert_allclose(host(points["scores"])[0, 0], [[math.log(3.0), 0.0]] * 2, rtol=1e-6)
    np.testing.assert_allclose(host(points["weights"])[0, 0], [[1.0, 0.0], [0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(heads[0, 0], [[4.0, 0.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]], rtol=1e-6)


def test_query_heads_share_neighbouring_key_heads(backend: tinyxp.Backend) -> None:
    """Four query heads on two key/value heads: 0 and 1 read the first, 2 and 3 the second."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4, 3, 4)), rng.normal(size=(2, 2, 3, 4)), rng.normal(size=(2, 2, 3, 4))
    visible = np.tril(np.ones((3, 3), dtype=bool))[None, None]
    heads, points = attend(backend, q, k, v, visible)
    for i in range(4):
        scores = q[:, i] @ k[:, i // 2].swapaxes(1, 2) / 2.0
        weights = np.exp(scores) * visible[0]
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(host(points["weights"])[:, i], weights, atol=1e-6)
        np.testing.assert_allclose(heads[:, i], weights @ v[:, i // 2], atol=1e-5)


def test_scores_that_overflow_float16_on_the_way(backend: tinyxp.Backend) -> None:
    if "float16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no float16")
    x = np.full((1, 1, 2, 64), 32.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads, points = attend(backend, x, x, x, np.ones((1, 1, 2, 2), dtype=bool), "float16")
    assert kind(points["scores"]) == kind(points["weights"]) == "float16"
    assert host(points["scores"]).tolist() == [[[[8192.0] * 2] * 2]]
    assert heads.tolist() == [[[[32.0] * 64] * 2]]


def test_a_query_that_sees_nothing_gets_zeros(backend: tinyxp.Backend, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    visible = [[[[False] * 3, [True, False, False], [False] * 3]]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads, points = attend(backend, x, x, x, visible, dtype)
    assert not heads[:, :, [0, 2]].any()
    assert not host(points["weights"])[:, :, [0, 2]].any()
    assert np.array_equal(heads[:, :, 1], host(array(backend, x, dtype))[:, :, 0])


# The cache


@pytest.mark.parametrize("start", range(4))
def test_write_cache(backend: tinyxp.Backend, start: int) -> None:
    cache = np.arange(2 * 1 * 5 * 3).reshape(2, 1, 5, 3).astype(np.float32)
    new = -np.ones((2, 1, 2, 3), dtype=np.float32)
    expected = cache.copy()
    expected[:, :, start : start + 2] = new
    before = array(backend, cache)
    written = ops.write_cache(
        before, array(backend, new), array(backend, start), array(backend, np.arange(5)), xp=backend.xp
    )
    assert np.array_equal(host(written), expected)
    assert np.array_equal(host(before), cache)
