"""The sentences that begin a report: what was found, and the first next token that differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.html.comparisons import (
    GPT2,
    LLAMA,
    agreeing,
    change_trace,
    different,
    different_shape,
    not_finite,
    without_reference,
)
from tests.reference import drawn
from tinyxp.doctor import compare
from tinyxp.doctor.report import OPERATIONS, answer, token_line


def test_the_operations_are_those_of_all_trace_points() -> None:
    traces = [tinyxp.trace(drawn(config), [[1]]) for config in (LLAMA, GPT2)]
    names = {name for points in traces for name in points}
    assert {name.removeprefix(f"blocks.{i}.") for i in range(3) for name in names if f".{i}." in name} | {
        name for name in names if not name.startswith("blocks.")
    } == set(OPERATIONS)


def test_the_answer_of_a_difference() -> None:
    comparison = different()
    assert comparison.first is not None
    assert answer(comparison) == (
        "They part at blocks.1.attn.k (the projection to k in block 1): B is at fault there, "
        f"{comparison.first.excess:.3g} times what rounding may cost. It matters: logits part too."
    )


def test_the_answer_of_an_agreement() -> None:
    comparison = agreeing()
    worst = max(comparison.rows, key=lambda row: row.excess)
    assert answer(comparison) == (
        f"They agree: all {len(comparison.rows)} trace points are within rounding (44 to the last bit). The "
        f"largest error, at {worst.point}, is {worst.excess:.3g} times what rounding may cost."
    )
    same = compare(lambda ids: tinyxp.forward(drawn(LLAMA), ids), drawn(LLAMA), [[1, 2]])
    assert answer(same) == "They agree: the one trace point that both have is equal to the last bit."
    near = replace(same, rows=[replace(same.rows[0], verdict="noise", excess=0.5)], truth="")
    assert answer(near) == (
        "They agree: the one trace point that both have is within the tolerance. The largest error, at "
        "logits, is 0.5 times the tolerance."
    )


def test_the_answer_of_other_shapes_that_do_not_reach_the_end() -> None:
    assert answer(different_shape()) == (
        "They part at blocks.0.mlp.up (the up projection of the MLP in block 0): A has shape (1, 9, 64), B "
        "has (1, 9, 63). It does not reach the end: logits agree, so that it may be a convention."
    )


def test_the_answer_of_a_value_that_is_not_finite() -> None:
    comparison = not_finite()
    weight = tinyxp.trace(drawn(LLAMA), comparison.batch.ids)["blocks.0.attn.weights"][0, 2, 3, 1]
    assert answer(comparison) == (
        "They part at blocks.0.attn.weights (the mask and the softmax of the scores in block 0): B is at "
        "fault there, infinitely many times what rounding may cost; at row 0, head 2, position 3, key 1 A "
        f"has {weight:.3g}, B has nan. It matters: logits part too."
    )
    assert token_line(comparison).endswith(": a logit there is not finite.")


def test_the_answer_without_a_reference() -> None:
    comparison = without_reference()
    assert comparison.truth == ""
    assert comparison.first is not None
    assert answer(comparison) == (
        f"They part at logits (the head): the distance of B from A is {comparison.first.excess:.3g} times "
        "the tolerance. It matters: these are the logits."
    )


def test_the_answer_of_a_fault_of_a() -> None:
    comparison = compare(change_trace(lambda p: p["logits"].__imul__(np.float32(2))), drawn(LLAMA))
    assert comparison.judged == "A"
    assert "A is at fault there" in answer(comparison)


def test_the_answer_says_which_side_and_how_it_ends() -> None:
    def change(points: dict[str, np.ndarray]) -> None:
        points["blocks.1.mlp.out"] *= 2
        points["blocks.1.residual"] *= 2
        del points["logits"], points["final_norm"]

    comparison = compare(drawn(LLAMA), change_trace(change))
    assert answer(comparison).endswith("It matters: blocks.1.residual parts too.")
    *rows, first, last = comparison.rows
    assert first is comparison.first
    first = replace(first, at_fault="A and B", excess=0.5)
    both = replace(comparison, first=first, rows=[*rows, first, replace(last, verdict="noise")])
    assert answer(both) == (
        "They part at blocks.1.mlp.out (the down projection of the MLP in block 1): A and B are at fault "
        "there, 0.5 times what rounding may cost, but what this operation adds to the error of its inputs is "
        "more than that. It does not reach the end: blocks.1.residual agrees, so that it may be a convention."
    )
    at_the_end = replace(both, rows=both.rows[:-1])
    assert answer(at_the_end).endswith(" It is the last point that both have.")
    assert token_line(at_the_end) == ""


@pytest.mark.parametrize("is_tie", [True, False])
def test_the_first_next_token_that_differs(is_tie: bool) -> None:
    comparison = different()
    token = comparison.token
    assert token is not None
    difference = (
        f"The first next token that differs, after position {token.position}: A {token.a} (ahead by "
        f"{token.margin_a:.3g}), B {token.b} (ahead by {token.margin_b:.3g}): "
    )
    moved = f"{comparison.rows[-1].moved:.3g}"
    tie = replace(comparison, token=token._replace(is_tie=is_tie))
    assert token_line(tie) == difference + (
        f"a tie: rounding may move two logits apart by {moved}."
        if is_tie
        else f"not a tie: rounding moves two logits apart by no more than {moved}."
    )
    unknown = replace(tie, truth="", token=token._replace(is_tie=False))
    assert token_line(unknown) == f"{difference}whether rounding explains it is not known."


def test_next_tokens_that_are_the_same() -> None:
    comparison = replace(different(), token=None)
    assert token_line(comparison) == "All 9 next tokens are the same."
    assert token_line(replace(comparison, predictions=1)) == "The next token is the same."
