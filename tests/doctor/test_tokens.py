"""The first next token that differs, its margins, and whether it is a tie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp.doctor import Batch, Token, compare
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.rounding import measure_errors
from tinyxp.doctor.tokens import compare_tokens
from tinyxp.doctor.verdicts import Row, Verdict

from .models import IDS, llama, port, traced

A = np.array([[[0.0, 3.0, 1.0], [4.0, 1.0, 0.0]], [[0.0, 1.0, 5.0], [2.0, 0.0, 1.5]]])


def logits_row(moved: float) -> Row:
    return Row(point="logits", shape=A.shape, verdict=Verdict.NOISE, moved=moved)


def test_the_first_token_that_differs_row_by_row_with_margins_by_hand() -> None:
    b = A.copy()
    b[0, 1] = [1.0, 1.5, 3.5]  # 0 becomes 2
    b[1, 0] = [9.0, 1.0, 5.0]
    found = compare_tokens(logits_row(4.0), A, b, Batch(IDS[:, :2]))
    assert found == (Token(0, 1, 0, 2, 4.0, 2.5, True), 4)
    found = compare_tokens(logits_row(3.9), A, b, Batch(IDS[:, :2]))
    assert found == (Token(0, 1, 0, 2, 4.0, 2.5, False), 4)


def test_a_tie_needs_both_margins_to_be_small() -> None:
    b = A.copy()
    b[0, 0] = [9.0, 3.0, 1.0]  # of A's 3.0, and of B's 6.0
    token, _ = compare_tokens(logits_row(4.0), A, b, Batch(IDS[:, :2]))
    assert token == Token(0, 0, 1, 0, 3.0, 6.0, False)


def test_padding_is_no_place_to_differ_at() -> None:
    b = A.copy()
    b[0, 0], b[1, 1] = [9.0, 3.0, 1.0], [2.0, 9.0, 1.5]
    mask = np.array([[False, True], [True, False]])
    assert compare_tokens(logits_row(0.0), A, b, Batch(IDS[:, :2], mask)) == (None, 2)


def shifted(rise: float) -> Any:
    """A port whose logits of the runner-up rise, at the last position, by the margin and a bit."""

    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name != "logits":
            return x
        y = x.copy()
        second, first = np.argsort(y[0, -1])[-2:]
        y[0, -1, second] = y[0, -1, first] + np.float32(rise)
        return y

    return port(llama(), change)


def test_a_token_apart_by_more_than_rounding_is_no_tie() -> None:
    found = compare(llama(), shifted(0.01), IDS[:1])
    assert found.first is not None
    assert found.first.point == "logits"
    assert found.token is not None
    assert not found.token.is_tie
    second, first = np.argsort(traced(llama(), IDS[:1])["logits"][0, -1])[-2:]
    assert (found.token.row, found.token.position) == (0, 11)
    assert (found.token.a, found.token.b) == (first, second)
    assert found.token.margin_b == pytest.approx(0.01, rel=1e-3)


def test_a_token_apart_by_rounding_is_a_tie() -> None:
    """Two equal columns of the head, one of them a rounding larger on one side."""
    arrays = dict(llama())
    best = int(np.argmax(traced(llama(), IDS[:1])["logits"][0, -1]))
    head = np.array(arrays["head.weight"])
    head[best - 1] = head[best]
    params = tinyxp.Params(arrays | {"head.weight": head}, llama().config)
    ulp = np.float32(2.0**-22)

    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name != "logits":
            return x
        y = x.copy()
        y[..., best] *= np.float32(1.0) + ulp
        return y

    found = compare(params, port(params, change), IDS[:1])
    assert found.agrees
    assert found.token is not None
    assert (found.token.a, found.token.b) == (best - 1, best)
    assert found.token.margin_a == 0.0
    assert 0.0 < found.token.margin_b < 1e-5
    assert found.token.is_tie


def test_rounding_may_move_each_of_two_logits_by_twice_what_it_moves_a_right_one_at_most() -> None:
    found = compare(llama(), llama(), IDS)
    row = found.row("logits")
    assert row is not None
    weights = WeightSource.of_params(llama())
    (errors,) = measure_errors(weights, found.batch, [found.trace_a]).errors
    reference = traced(llama().to(dtype="float64"), IDS)["logits"]
    worst = float(np.max(np.abs(found.trace_a.points["logits"] - reference)))
    assert errors["logits"].distance.worst == worst
    assert 4.0 * worst <= row.moved <= 8.0 * worst
