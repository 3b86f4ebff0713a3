"""Causes that concern a side as a whole."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

import tinyxp
from tests.doctor.cases import case_of
from tests.doctor.models import IDS, LLAMA_SMALL, llama, port, traced
from tests.reference import drawn
from tinyxp.doctor import Batch, Recorded
from tinyxp.doctor.faults.tables import put_in_front
from tinyxp.doctor.side_checks import check_dtype, check_front_token, check_random, check_width


def test_logits_that_change_from_call_to_call() -> None:
    count = itertools.count()

    def random(ids: np.ndarray) -> Any:
        return np.asarray(tinyxp.forward(llama(), ids)) * (1.0 + 0.1 * next(count))

    cause = check_random(case_of(llama(), random))
    assert cause is not None
    assert cause.keys == ("dropout",)
    assert check_random(case_of(llama(), lambda ids: tinyxp.forward(llama(), ids))) is None
    assert check_random(case_of(llama(), port(llama()))) is None


def test_a_token_in_front() -> None:
    def longer(ids: np.ndarray) -> Any:
        return traced(llama(), put_in_front(Batch(ids), 7).ids)

    checked = check_front_token(case_of(llama(), longer))
    assert checked is not None
    cause, case = checked
    assert cause.keys == ("extra token 7 in front",)
    assert case.batch.ids.shape == (2, 13)
    assert check_front_token(case_of(llama(), port(llama()))) is None


def test_a_model_of_another_width() -> None:
    wide = drawn(replace(LLAMA_SMALL, d_model=40, n_heads=5, n_kv_heads=5))
    cause = check_width(case_of(llama(), wide))
    assert cause is not None
    assert cause.sentence == "B is another model: its residual stream has width 40, this model's 32"
    assert check_width(case_of(llama(), llama())) is None


def test_values_of_fewer_digits_than_their_dtype() -> None:
    def narrow(ids: np.ndarray) -> Any:
        wrong = traced(drawn(replace(LLAMA_SMALL, norm_eps=1e-2)), ids)
        return {n: x.astype(np.float16).astype(np.float32) for n, x in wrong.items()}

    checked = check_dtype(case_of(llama(), narrow))
    assert checked is not None
    cause, case = checked
    assert (cause.keys, case.dtype) == (("computes in float16",), "float16")
    assert check_dtype(case_of(llama(), port(drawn(LLAMA_SMALL, seed=1)))) is None


def test_a_recorded_side_is_not_asked_again() -> None:
    points = {"logits": np.asarray(tinyxp.forward(drawn(LLAMA_SMALL, seed=1), IDS))}
    assert check_random(case_of(llama(), Recorded(Batch(IDS), points))) is None
