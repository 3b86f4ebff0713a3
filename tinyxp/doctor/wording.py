"""The sentences that reports and pages share."""

from __future__ import annotations

import math
from collections.abc import Callable

from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.verdicts import Comparison, Row, Verdict

OPERATIONS = {
    "embed": "the embedding",
    "attn_norm": "the norm before attention",
    "attn.q": "the projection to q",
    "attn.k": "the projection to k",
    "attn.v": "the projection to v",
    "attn.q_rotated": "the rotation of q",
    "attn.k_rotated": "the rotation of k",
    "attn.scores": "the scaled products of q and k",
    "attn.weights": "the mask and the softmax of the scores",
    "attn.heads": "the weighted sums of v",
    "attn.out": "the output projection of attention",
    "attn_residual": "the sum after attention",
    "mlp_norm": "the norm before the MLP",
    "mlp.gate": "the gate projection of the MLP",
    "mlp.up": "the up projection of the MLP",
    "mlp.hidden": "the activation of the MLP",
    "mlp.out": "the down projection of the MLP",
    "residual": "the sum after the MLP",
    "final_norm": "the last norm",
    "logits": "the head",
}
"""What the model computes at each kind of point."""

Decode = Callable[[int], str]


def summarize(comparison: Comparison) -> str:
    """Say in a sentence or two where the sides differ first, and whether it matters."""
    first, last = comparison.first, comparison.rows[-1]
    if first is None:
        return _agreement(comparison)
    block = block_of(first.point)
    operation = OPERATIONS[kind(first.point)] + ("" if block is None else f" in block {block}")
    difference = f"First difference at {first.point} ({operation}): {_fault(comparison, first)}."
    s = "" if last.point == "logits" else "s"
    if last is first:
        return f"{difference} It {'is the last common point' if s else 'matters: these are the logits'}."
    if last.differs:
        return f"{difference} It matters: {last.point} differ{s} too."
    return f"{difference} It does not reach the end: {last.point} agree{s}, so it may be a convention."


def _agreement(comparison: Comparison) -> str:
    rows = comparison.rows
    exact = sum(row.verdict == Verdict.EXACT for row in rows)
    points = f"all {len(rows)} trace points are" if len(rows) > 1 else "the only common trace point is"
    if exact == len(rows):
        return f"They agree: {points} equal to the last bit."
    agreement = (
        f"They agree: {points} within {'rounding' if comparison.reference else 'the tolerance'}"
        f"{f' ({exact} to the last bit)' if exact else ''}."
    )
    worst = max(rows, key=lambda row: row.excess)
    if worst.excess == 0.0:  # the side in doubt is the reference run itself
        return agreement
    return f"{agreement} The largest error, at {worst.point}, is {_size(comparison, worst)}."


def _fault(comparison: Comparison, first: Row) -> str:
    """Say which side is wrong at the first difference, and how far off."""
    if first.shapes is not None:
        return describe_shapes(first)
    size = _size(comparison, first)
    if not comparison.reference:
        fault = f"the distance of B from A is {size}"
    elif len(first.at_fault.sides) > 1:
        fault = f"{first.at_fault} are wrong, their error is {size}"
    else:
        fault = f"{first.at_fault} is wrong, its error is {size}"
    if comparison.reference and first.excess <= 1.0:
        fault += ", but this operation adds more than rounding to the error of its inputs"
    if first.distance is not None and math.isinf(first.distance.worst):
        fault += f"; at {first.place} A has {first.value_a:.3g}, B has {first.value_b:.3g}"
    return fault


def _size(comparison: Comparison, row: Row) -> str:
    if math.isinf(row.excess):
        return "infinite"
    return f"{row.excess:.3g} times the {'rounding limit' if comparison.reference else 'tolerance'}"


def describe_shapes(row: Row) -> str:
    """Say which shapes differ at a point."""
    assert row.shapes is not None
    if row.distance is None:
        return f"A has shape {row.shapes[0]}, B has {row.shapes[1]}"
    return f"the weights give shape {row.shapes[0]}, both sides have {row.shapes[1]}"


def describe_token(comparison: Comparison, decode: Decode | None = None) -> str:
    """Say which next token differs first; an empty string if there are no logits."""
    if not comparison.predictions:
        return ""
    token = comparison.token
    if token is None:
        if comparison.predictions == 1:
            return "The next token is the same."
        return f"All {comparison.predictions:,} next tokens are the same."
    moved = f"{comparison.rows[-1].moved:.3g}"  # the logits are the last point
    if not math.isfinite(token.margin_a + token.margin_b):
        tie = "a logit there is not finite"
    elif token.is_tie:
        tie = f"a tie: rounding may move two logits apart by {moved}"
    elif comparison.reference:
        tie = f"not a tie: rounding moves two logits apart by at most {moved}"
    else:
        tie = "whether rounding explains it is unknown"
    names = tuple(f"{i} {decode(i)!r}" if decode else str(i) for i in (token.a, token.b))
    row = f"row {token.row}, " if len(comparison.batch.ids) > 1 else ""
    return (
        f"The first next token that differs, after {row}position {token.position}: A {names[0]} (ahead by "
        f"{token.margin_a:.3g}), B {names[1]} (ahead by {token.margin_b:.3g}): {tie}."
    )
