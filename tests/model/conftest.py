"""What the tests of the model share."""

from __future__ import annotations

import pytest

import tinyxp
from tests.reference import CONFIGS, filled
from tinyxp import Config, Params


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


@pytest.fixture
def params(backend: tinyxp.Backend, config: Config) -> Params:
    return filled(config).to(backend.xp, dtype="float32")
