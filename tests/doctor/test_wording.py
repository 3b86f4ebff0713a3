"""The sentences of a report: where the sides differ first, whether it matters, and the next tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tinyxp
from tinyxp.doctor import AtFault, Comparison, Verdict, compare
from tinyxp.doctor.points import kind
from tinyxp.doctor.wording import OPERATIONS, describe_token, summarize

from .models import IDS, at, edited, gpt2, llama, port, traced, with_weight


@cache
def different() -> Comparison:
    return compare(llama(), with_weight(llama(), "blocks.1.attn.k.weight", lambda x: x[::-1].copy()), IDS)


def test_every_trace_point_has_an_operation() -> None:
    names = {kind(name) for params in (llama(), gpt2()) for name in traced(params, [[1]])}
    assert names == set(OPERATIONS)


def test_a_difference() -> None:
    comparison = different()
    assert comparison.first is not None
    assert summarize(comparison) == (
        "First difference at blocks.1.attn.k (the projection to k in block 1): B is wrong, its error is "
        f"{comparison.first.excess:.3g} times the rounding limit. It matters: logits differ too."
    )


def test_an_agreement() -> None:
    comparison = compare(gpt2(), edited(gpt2(), "logits", lambda x: x + np.float32(1e-7)), IDS)
    worst = max(comparison.rows, key=lambda row: row.excess)
    exact = len(comparison.rows) - 1
    assert summarize(comparison) == (
        f"They agree: all {exact + 1} trace points are within rounding ({exact} to the last bit). The "
        f"largest error, at {worst.point}, is {worst.excess:.3g} times the rounding limit."
    )
    same = compare(lambda ids: tinyxp.forward(llama(), ids), llama(), IDS)
    assert summarize(same) == "They agree: the only common trace point is equal to the last bit."
    near = replace(same, rows=(replace(same.rows[0], verdict=Verdict.NOISE, excess=0.5),), reference="")
    assert summarize(near) == (
        "They agree: the only common trace point is within the tolerance. The largest error, at logits, is "
        "0.5 times the tolerance."
    )


def test_shapes_that_differ_and_do_not_reach_the_end() -> None:
    comparison = compare(llama(), edited(llama(), "blocks.0.mlp.up", lambda x: x[..., :-1]), IDS)
    assert summarize(comparison) == (
        "First difference at blocks.0.mlp.up (the up projection of the MLP in block 0): A has shape "
        "(2, 12, 64), B has (2, 12, 63). It does not reach the end: logits agree, so it may be a convention."
    )


def test_a_shape_that_contradicts_the_weights() -> None:
    wide = edited(llama(), "blocks.0.mlp.up", lambda x: x[..., :-1])(IDS)
    comparison = compare(tinyxp.doctor.as_side(lambda ids: wide), llama(), IDS)
    assert comparison.first is not None
    row = replace(comparison.first, distance=comparison.rows[0].distance, shapes=((2, 12, 64), (2, 12, 63)))
    assert "the weights give shape (2, 12, 64), both sides have (2, 12, 63)" in summarize(
        replace(comparison, first=row)
    )


def test_a_value_that_is_not_finite() -> None:
    def change(x: np.ndarray) -> None:
        x[0, 2, 3, 1] = math.nan

    comparison = compare(llama(), edited(llama(), "blocks.0.attn.weights", change), IDS)
    weight = traced(llama(), IDS)["blocks.0.attn.weights"][0, 2, 3, 1]
    assert summarize(comparison).startswith(
        "First difference at blocks.0.attn.weights (the mask and the softmax of the scores in block 0): B is "
        "wrong, its error is infinite; at row 0, head 2, position 3, key 1 A has "
        f"{weight:.3g}, B has nan."
    )


def test_no_reference_run() -> None:
    comparison = compare(port(llama()), port(llama(), at("logits", lambda x: x * 2)), IDS)
    assert comparison.reference == ""
    assert comparison.first is not None
    assert summarize(comparison) == (
        f"First difference at logits (the head): the distance of B from A is {comparison.first.excess:.3g} "
        "times the tolerance. It matters: these are the logits."
    )


def test_a_fault_of_a() -> None:
    comparison = compare(port(llama(), at("logits", lambda x: x * 2)), llama(), IDS)
    assert "A is wrong, its error is" in summarize(comparison)


def test_a_small_error_that_one_operation_adds_and_the_end_of_a_partial_trace() -> None:
    def partial(ids: np.ndarray) -> dict[str, np.ndarray]:
        points = traced(llama(), ids)
        points["blocks.1.mlp.out"] *= 2
        points["blocks.1.residual"] *= 2
        del points["logits"], points["final_norm"]
        return points

    comparison = compare(llama(), partial, IDS)
    assert summarize(comparison).endswith("It matters: blocks.1.residual differs too.")
    *rows, first, last = comparison.rows
    assert first is comparison.first
    first = replace(first, at_fault=AtFault.BOTH, excess=0.5)
    both = replace(comparison, first=first, rows=(*rows, first, replace(last, verdict=Verdict.NOISE)))
    assert summarize(both) == (
        "First difference at blocks.1.mlp.out (the down projection of the MLP in block 1): A and B are "
        "wrong, their error is 0.5 times the rounding limit, but this operation adds more than rounding to "
        "the error of its inputs. It does not reach the end: blocks.1.residual agrees, so it may be a "
        "convention."
    )
    at_the_end = replace(both, rows=both.rows[:-1])
    assert summarize(at_the_end).endswith(" It is the last common point.")
    assert describe_token(at_the_end) == ""


@pytest.mark.parametrize("is_tie", [True, False])
def test_the_first_next_token_that_differs(is_tie: bool) -> None:
    comparison = different()
    token = comparison.token
    assert token is not None
    difference = (
        f"The first next token that differs, after row {token.row}, position {token.position}: A {token.a} "
        f"(ahead by {token.margin_a:.3g}), B {token.b} (ahead by {token.margin_b:.3g}): "
    )
    moved = f"{comparison.rows[-1].moved:.3g}"
    tie = replace(comparison, token=token._replace(is_tie=is_tie))
    assert describe_token(tie) == difference + (
        f"a tie: rounding may move two logits apart by {moved}."
        if is_tie
        else f"not a tie: rounding moves two logits apart by at most {moved}."
    )
    unknown = replace(tie, reference="", token=token._replace(is_tie=False))
    assert describe_token(unknown) == f"{difference}whether rounding explains it is unknown."
    broken = replace(tie, token=token._replace(margin_b=math.nan))
    assert describe_token(broken).endswith(": a logit there is not finite.")


def test_next_tokens_that_are_the_same() -> None:
    comparison = replace(different(), token=None)
    assert describe_token(comparison) == "All 24 next tokens are the same."
    assert describe_token(replace(comparison, predictions=1)) == "The next token is the same."


def test_tokens_are_decoded() -> None:
    comparison = different()
    assert comparison.token is not None
    assert f"A {comparison.token.a} '<{comparison.token.a}>' (" in describe_token(
        comparison, lambda i: f"<{i}>"
    )
