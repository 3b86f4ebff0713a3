"""Recipes: the learning rate at each step, and what is refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tinyxp.train import Recipe


def test_the_rate_climbs_in_a_line_to_the_peak_and_falls_to_a_tenth_at_the_last_step() -> None:
    recipe = Recipe(steps=200, peak=3e-3, warmup=20)
    rates = [recipe.rate(step) for step in range(200)]
    assert rates[:20] == pytest.approx([3e-3 * (t + 1) / 20 for t in range(20)], rel=1e-12)
    assert rates[19] == rates[20] == 3e-3
    assert rates[199] == pytest.approx(3e-4, rel=1e-12)
    assert rates[198] > rates[199]
    assert all(a >= b for a, b in pairwise(rates[19:]))
    assert rates[100] == pytest.approx(3e-4 + 2.7e-3 * (1 + math.cos(math.pi * 80 / 179)) / 2, rel=1e-12)


def test_without_a_warmup_the_first_step_has_the_peak() -> None:
    recipe = Recipe(steps=3, peak=2.0, warmup=0)
    assert [recipe.rate(t) for t in range(3)] == pytest.approx([2.0, 1.1, 0.2], rel=1e-12)
    constant = Recipe(steps=3, peak=2.0, warmup=0, floor=1.0)
    assert [constant.rate(t) for t in range(3)] == [2.0] * 3


@pytest.mark.parametrize("warmup", [4, 5, 8])
def test_a_run_that_is_all_warmup_climbs_to_its_end(warmup: int) -> None:
    recipe = Recipe(steps=4, peak=1.0, warmup=warmup)
    assert [recipe.rate(t) for t in range(4)] == [(t + 1) / warmup for t in range(4)]


def test_a_single_step_after_the_warmup_is_the_last_one() -> None:
    assert Recipe(steps=1, peak=1.0, warmup=0).rate(0) == pytest.approx(0.1, rel=1e-12)
    assert Recipe(steps=1, peak=1.0, warmup=1).rate(0) == 1.0
    assert [Recipe(steps=3, peak=1.0, warmup=2).rate(t) for t in range(3)] == pytest.approx([0.5, 1.0, 0.1])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps is 0; it must be an integer of 1 or more"),
        ({"steps": 2.0}, "steps is 2.0; it must be an integer"),
        ({"steps": True}, "steps is True; it must be an integer"),
        ({"batch": 0}, "batch is 0; it must be an integer of 1 or more"),
        ({"evaluate_every": 0}, "evaluate_every is 0; it must be an integer of 1 or more"),
        ({"warmup": -1}, "warmup is -1; it must be an integer of 0 or more"),
        ({"seed": -1}, "seed is -1; it must be an integer of 0 or more"),
        ({"peak": math.nan}, "peak is nan; it must be a finite number above 0"),
        ({"peak": 0}, "peak is 0; it must be a finite number above 0"),
        ({"eps": -1e-8}, "eps is -1e-08; it must be a finite number above 0"),
        ({"clip": math.inf}, "clip is inf; it must be a finite number above 0"),
        ({"decay": -0.1}, "decay is -0.1; it must be a number of 0 or more"),
        ({"decay": math.nan}, "decay is nan; it must be a number of 0 or more"),
        ({"dropout": 1.0}, "dropout has 1.0; it must be a number from 0 to below 1"),
        ({"dropout": "a"}, "dropout has 'a'; it must be a number from 0 to below 1"),
        ({"floor": 1.1}, "floor has 1.1; it must be a number from 0 to 1"),
        ({"betas": (0.9, 1.0)}, "betas has 1.0; it must be a number from 0 to below 1"),
        ({"betas": (0.9,)}, "betas is (0.9,); it must be two numbers"),
        ({"betas": 0.9}, "betas is 0.9; it must be two numbers"),
        ({"micro_batch": 0}, "micro_batch is 0; it must be an integer of 1 or more"),
        ({"dtype": "int8"}, "dtype is 'int8'; known are float64, float32, bfloat16, float16"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_its_limit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Recipe(**{"steps": 1} | change)


def test_a_recipe_is_plain_data_whatever_numbers_it_is_made_of() -> None:
    ours = Recipe(steps=3, decay=0.5, dropout=0.25, floor=0.5, betas=(0.5, 0.75), dtype="float32")
    theirs = Recipe(
        steps=np.int64(3),
        decay=np.float32(0.5),
        dropout=np.float32(0.25),
        floor=np.float32(0.5),
        betas=[np.float32(0.5), np.float32(0.75)],
        dtype=np.dtype("float32"),
    )
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    read = json.loads(json.dumps(asdict(theirs)))
    assert read["decay"] == 0.5
    assert Recipe(**read) == ours
    with pytest.raises(FrozenInstanceError):
        ours.steps = 4  # type: ignore[misc]
