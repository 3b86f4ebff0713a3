"""Laws that tests register, and remove again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import strategies as st

from tinyxp.testing import LAWS, Draw, Law, Subject, law, subject
from tinyxp.testing.strategies import configs, token_ids


@pytest.fixture
def laws() -> Iterator[None]:
    """Laws that are registered in a test are gone after it."""
    before = dict(LAWS)
    yield
    LAWS.clear()
    LAWS.update(before)


@pytest.fixture
def small_ids(laws: None) -> Law:
    """Broken by any id of 3 or more in a model of two blocks or more."""

    @law("In deep models ids are below 3.", of="model", region="here", source="nowhere", needs="params")
    def small_ids(subject: Subject, draw: Draw) -> None:
        config = draw("config", configs(n_layers=(1, 2)))
        ids = draw("ids", token_ids(config))
        limit = draw("limit", st.just(np.array([2.0])))
        if config.n_layers > 1:
            subject.equal(np.maximum(ids, limit), np.full(np.shape(ids), 2.0), "ids")

    return small_ids


@pytest.fixture
def numpy() -> Subject:
    return subject("numpy")
