"""A token that a side puts in front."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, IDS, LLAMA_SMALL
from tests.doctor.variants import right_variant, run
from tinyxp import Config
from tinyxp.doctor.faults.tables import put_in_front
from tinyxp.doctor.front_token import find_front_token, with_front_token
from tinyxp.doctor.traces import Batch


@pytest.mark.parametrize("only", ["", "logits"])
@pytest.mark.parametrize("config", [LLAMA_SMALL, GPT2_SMALL], ids=["llama", "gpt2"])
def test_it_is_read_off_the_embedding_or_the_logits(config: Config, only: str) -> None:
    batch = Batch(IDS)
    points = run(right_variant(config, put_in_front(batch, 7)))
    weights = right_variant(config).weights
    seen = {name: x for name, x in points.items() if name.endswith(only)}
    assert find_front_token(weights, batch, seen) == 7
    longer, kept = with_front_token(batch, seen, 7)
    assert longer.ids[:, 0].tolist() == [7, 7]
    assert kept.keys() == seen.keys()
    right = run(right_variant(config))
    assert find_front_token(weights, batch, {name: right[name] for name in seen}) is None


def test_a_column_of_something_else_is_no_token() -> None:
    weights = right_variant(LLAMA_SMALL).weights
    x = np.ones((2, 13, 32))
    assert find_front_token(weights, Batch(IDS), {"embed": x}) is None
    assert find_front_token(weights, Batch(IDS), {"logits": 9.0 * np.ones((2, 13, 61))}) is None
    assert find_front_token(weights, Batch(IDS), {"final_norm": x}) is None


def test_points_without_the_column_are_left_out() -> None:
    points = {"embed": np.ones((2, 13, 32)), "logits": np.ones((2, 12, 61))}
    assert with_front_token(Batch(IDS), points, 7)[1].keys() == {"embed"}
