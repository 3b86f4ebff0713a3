"""Padding on either side, anywhere, and whole rows of it: the real tokens never notice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyxp
from tests.reference import (
    CONFIGS,
    FLOAT32,
    IDS,
    alone,
    array,
    distance,
    filled,
    float64_on,
    host,
    libraries,
    padded,
)
from tinyxp import Config, Params, forward, loss, ops

WIDTH = 10


def test_zero_to_five_pads_on_either_side(params: Params) -> None:
    """Six rows of one batch with 0 to 5 columns of padding on the left and 5 to 0 on the right."""
    expected = alone(params.config, IDS[0])
    pads = np.random.default_rng(0).integers(0, 11, (6, WIDTH))
    ids, mask = padded(IDS * 6, list(range(6)), WIDTH, pads)
    for order in (np.arange(6), np.array([4, 1, 5, 0, 3, 2])):
        logits = host(forward(params, ids[order], mask=mask[order]))
        for r, left in enumerate(order):
            assert distance(logits[r, left : left + 5], expected) <= FLOAT32


def test_padding_in_float64(backend: tinyxp.Backend, config: Config) -> None:
    with float64_on(backend):
        params = filled(config).to(backend.xp)
        ids, mask = padded(IDS * 2, [2, 0], 7, np.full((2, 7), 9))
        logits = host(forward(params, ids, mask=mask))
        assert distance(logits[0, 2:], alone(config, IDS[0])) <= 1e-12
        assert distance(logits[1, :5], alone(config, IDS[0])) <= 1e-12


@pytest.mark.parametrize("name", libraries("numpy", "torch", "jax", "strict"))
@given(data=st.data())
def test_padding_anywhere(name: str, data: st.DataObject) -> None:
    backend = tinyxp.backend(name)
    config = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
    lengths = data.draw(st.lists(st.integers(1, WIDTH), min_size=6, max_size=6))
    rows = [data.draw(st.lists(st.integers(0, 10), min_size=n, max_size=n)) for n in lengths]
    lefts = [data.draw(st.integers(0, WIDTH - n)) for n in lengths]
    pads = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 11, (6, WIDTH))
    ids, mask = padded(rows, lefts, WIDTH, pads)
    logits = host(forward(filled(config).to(backend.xp, dtype="float32"), ids, mask=mask))
    for r, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        assert distance(logits[r, left : left + len(row)], alone(config, row)) <= FLOAT32


def test_a_mask_of_ones_is_no_mask(params: Params) -> None:
    for ones in (np.ones((1, 5), dtype=bool), [[1] * 5], [[True] * 5]):
        assert distance(forward(params, IDS, mask=ones), forward(params, IDS)) <= FLOAT32


def test_masks_of_every_kind_are_alike(params: Params) -> None:
    ids, mask = padded(IDS, [1], 6, [[0] * 6])
    logits = host(forward(params, ids, mask=mask))
    own = array(params.backend, mask)
    for other in (mask.tolist(), mask.astype(np.int64), own, ops.cast(own, params.xp.int32, xp=params.xp)):
        assert np.array_equal(host(forward(params, ids, mask=other)), logits)


def test_rows_that_are_all_padding_are_finite(params: Params) -> None:
    mask = [[True] * 5, [False] * 5]
    points = tinyxp.trace(params, IDS * 2, mask=mask)
    assert all(np.isfinite(host(x)).all() for name, x in points.items() if not name.endswith("scores"))
    assert not host(points["blocks.0.attn.weights"])[1].any()
    assert not host(points["blocks.0.attn.heads"])[1].any()
    assert distance(host(points["logits"])[0], alone(params.config, IDS[0])) <= FLOAT32


@pytest.mark.parametrize("library", libraries("torch", "jax"))
def test_gradients_with_padding_are_finite_and_the_same(library: str, config: Config) -> None:
    backend = tinyxp.backend(library)
    ids, mask = padded([*IDS, []], [2, 0], 7, np.full((2, 7), 9))
    targets = np.where(mask, 4, -100)
    params = filled(config).to(backend.xp, dtype="float32")
    value_and_grad = backend.value_and_grad(loss)
    if library == "jax":
        value_and_grad = backend.jit(value_and_grad)
    value, found = value_and_grad(params, ids, targets, mask=mask)
    lone_value, lone = value_and_grad(params, np.asarray(IDS), np.full((1, 5), 4))
    assert distance(value, lone_value) <= FLOAT32
    for name, x in found.items():
        assert np.isfinite(host(x)).all(), name
        assert distance(x, lone[name]) <= FLOAT32, name
