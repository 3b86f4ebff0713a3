"""The pieces of work do what they are measured as."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tinyxp.bench import work
from tinyxp.registry import Backend


def test_prefill_gives_the_last_logits(backend: Backend) -> None:
    params = tinyxp.init(tinyxp.Config(), xp=backend.xp)
    ids = work.draw_ids(params, 2, 9)
    expected = backend.to_numpy(tinyxp.forward(params, ids))[:, -1]
    np.testing.assert_allclose(work.prefill(params, 2, 9)(), expected, atol=1e-5)


def test_the_head_at_all_positions_and_at_the_last(backend: Backend) -> None:
    params = tinyxp.init(tinyxp.Config(), xp=backend.xp)
    every = backend.to_numpy(work.head(params, 9, last=False)())
    last = backend.to_numpy(work.head(params, 9, last=True)())
    assert every.shape == (1, 9, 128)
    np.testing.assert_allclose(last, every[:, -1:], atol=1e-5)


@pytest.mark.parametrize("position", [1, 20, 63, 64])
@pytest.mark.parametrize("config", [tinyxp.Config(), tinyxp.Config(position="learned")])
def test_steps_stay_within_the_context(config: tinyxp.Config, position: int) -> None:
    one = work.step(tinyxp.init(config), 2, position, 6)
    for _ in range(6):
        assert one().shape == (2, 128)


def test_the_first_token_is_one() -> None:
    assert work.first_token(tinyxp.init(tinyxp.Config()), 5)().shape == (1, 1)
