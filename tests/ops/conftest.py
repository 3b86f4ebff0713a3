"""What the tests of the arithmetic share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tinyxp
from tests.reference import float64_on


@pytest.fixture(params=["float64", "float32", "bfloat16", "float16"])
def dtype(request: pytest.FixtureRequest, backend: tinyxp.Backend) -> Iterator[str]:
    with float64_on(backend):
        if request.param not in backend.dtypes():
            pytest.skip(f"{backend.name} has no {request.param}")
        yield request.param
