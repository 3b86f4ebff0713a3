"""What the tests of the adapters share."""

from __future__ import annotations

import pytest

from tests.reference import CONFIGS
from tinyxp import Config


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]
