"""What the tests of the adapters share."""

from __future__ import annotations

import pytest

from tinyxp import Config

from ..reference import CONFIGS


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]
