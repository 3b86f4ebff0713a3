"""One bench of the smallest model, which the tests here read."""

from __future__ import annotations

import pytest

from tinyxp.bench.plan import Plan
from tinyxp.bench.session import Bench, measure


@pytest.fixture(scope="session")
def tiny_bench() -> Bench:
    plan = Plan(model="tiny", backends=("numpy",), dtypes=("float32", "bfloat16"), repeats=2, rest=0.0)
    return measure(plan)
