"""What the model requests, computed once."""

from __future__ import annotations

import numpy as np
import pytest

from tools.array_api.usage import Usage, array_api_usage


@pytest.fixture(scope="session")
def usage() -> Usage:
    return array_api_usage(np)
