"""The limits: how much work they are, and that it is done."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tinyxp.bench import limits
from tinyxp.bench.limits import product, weights_pass
from tinyxp.registry import Backend


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGEST", 64)


def test_a_product_of_two_squares(backend: Backend) -> None:
    limit = product(tinyxp.init(tinyxp.Config(), xp=backend.xp))
    assert limit.amount == 2 * 64**3
    assert backend.to_numpy(limit.work()).shape == (64, 64)


def test_a_slow_product_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENOUGH", 0.0)
    assert product(tinyxp.init(tinyxp.Config())).amount == 2 * 8**3


def test_a_pass_multiplies_by_each_matrix_once(backend: Backend) -> None:
    config = tinyxp.Config()
    limit = weights_pass(tinyxp.init(config, xp=backend.xp))
    assert limit.amount == 4 * (2 * (4 * 32 * 32 - 2 * 16 * 32 + 3 * 64 * 32) + 128 * 32)
    found = [backend.to_numpy(y) for y in limit.work()]
    expected = [
        x.sum(axis=1) for name, x in tinyxp.init(config).items() if x.ndim == 2 and name[:5] != "embed"
    ]
    assert len(found) == len(expected)
    for y, z in zip(found, expected, strict=True):
        np.testing.assert_allclose(y[0, 0], z, atol=1e-5)
