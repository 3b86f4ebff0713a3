"""What a page and a terminal read out of a forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp.html.forward_pass import ForwardPass, first_not_finite, next_tokens

from .forward_passes import CONFIGS, IDS, LONG_IDS, describe, make_backend_run, make_run


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_next_tokens_are_those_of_the_logits(run: ForwardPass) -> None:
    p = softmax(run.points["logits"][0, -1].astype(float))
    tokens = next_tokens(run)
    assert [i for i, _ in tokens] == np.argsort(-p)[:5].tolist()
    assert [x for _, x in tokens] == pytest.approx(np.sort(p)[::-1][:5].tolist(), abs=1e-7)


def test_the_lowest_id_is_first_among_equals() -> None:
    run = make_run("llama")
    equal = replace(run, points={"logits": np.zeros((1, len(IDS), 128), np.float32)})
    assert next_tokens(equal, 2) == [(0, 1 / 128), (1, 1 / 128)]


def test_points_and_tokens(run: ForwardPass) -> None:
    assert run.token(2) == describe(4)
    assert run.point("embed").dtype == np.float64
    assert np.array_equal(run.point("embed"), run.points["embed"][0])


def test_of_a_long_sequence_the_last_positions_are_shown() -> None:
    assert make_run("llama", LONG_IDS, str).shown == range(26, 90)
    assert make_run("llama").shown == range(7)


def test_the_first_point_that_is_not_finite() -> None:
    assert first_not_finite(make_run("llama")) is None
    arrays = {name: np.array(x) for name, x in drawn(CONFIGS["llama"]).items()}
    arrays["blocks.1.mlp.up.weight"][3, 2] = np.inf
    params = tinyxp.Params(arrays, CONFIGS["llama"])
    with np.errstate(all="ignore"):
        points = tinyxp.trace(params, [list(IDS)])
    assert first_not_finite(ForwardPass(params, IDS, points, str)) == "blocks.1.mlp.up"


def test_next_tokens_are_the_same_on_every_backend(backend: tinyxp.Backend) -> None:
    assert [i for i, _ in next_tokens(make_backend_run(backend))] == [
        i for i, _ in next_tokens(make_run("llama"))
    ]
