"""array_api_strict: its optional features off, and other devices, none of which mixes with another."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, distance, filled, host
from tinyxp import Config, extend, forward, generate, loss, new_cache

from .gradients import MASK, TARGETS

xp = pytest.importorskip("array_api_strict")


def test_strict_has_its_optional_features_off() -> None:
    tinyxp.backend("strict")
    flags = pytest.importorskip("array_api_strict").get_array_api_strict_flags()
    assert flags["api_version"] == "2024.12"
    assert flags["boolean_indexing"] is False
    assert flags["data_dependent_shapes"] is False
    assert tuple(flags["enabled_extensions"]) == ()


def test_strict_on_another_device(config: Config) -> None:
    xp = tinyxp.backend("strict").xp
    params = filled(config).to(xp, device="device1")
    device = xp.Device("device1")
    points = tinyxp.trace(params, IDS, mask=MASK)
    assert {x.device for x in points.values()} == {device}
    expected = forward(filled(config), IDS, mask=MASK)
    assert distance(host(points["logits"])[:, 1:], expected[:, 1:]) <= 1e-12
    assert loss(params, IDS, TARGETS, mask=MASK, positions=[[0, 0, 1, 2, 3]]).device == device
    logits, cache = extend(params, IDS, new_cache(params, 1, 8), mask=MASK, last=True)
    assert {x.device for x in (logits, *cache.keys, *cache.values, cache.real, cache.used)} == {device}
    ids = generate(params, IDS, 6, temperature=1.0, seed=0)
    assert ids.device == device
    assert np.array_equal(host(ids), generate(filled(config), IDS, 6, temperature=1.0, seed=0))


def test_sampling_on_another_device() -> None:
    xp = tinyxp.backend("strict").xp
    logits = tinyxp.backend("strict").from_numpy(np.array([[1.5, 0.5, 0.0, -1.0]]), device="device1")
    from tinyxp.sampling import draw, greedy, probabilities

    p = probabilities(logits, top_k=3, top_p=0.9, xp=xp)
    u = tinyxp.backend("strict").from_numpy(np.array([0.5]), device="device1")
    assert {x.device for x in (p, greedy(logits, xp=xp), draw(p, u, xp=xp))} == {xp.Device("device1")}
