"""A comparison as lines for a terminal, and as a record for programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.verdicts import CARRIED, EXACT, FAULT, NOISE, SHAPE, Comparison, Row, Token

SHOWN = 40
"""Up to so many rows are all shown."""
AROUND = (3, 9)
"""How many rows before and after the first that parts are shown among more."""
WORDS = {
    EXACT: "equal",
    NOISE: "noise",
    FAULT: "FAULT",
    CARRIED: "carried",
    SHAPE: "SHAPE",
}
"""The verdicts on a terminal."""

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
    "attn.heads": "the sums of v by weight",
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
"""What the model does at each kind of point."""

Decode = Callable[[int], str]


def answer(found: Comparison) -> str:
    """What was found, in a sentence or two."""
    first, last = found.first, found.rows[-1]
    if first is None:
        return _agreement(found)
    block = block_of(first.point)
    operation = OPERATIONS[kind(first.point)] + ("" if block is None else f" in block {block}")
    told = f"They part at {first.point} ({operation}): {_fault(found, first)}."
    s = "" if last.point == "logits" else "s"
    if last is first:
        return f"{told} It {'is the last point that both have' if s else 'matters: these are the logits'}."
    if last.parts:
        return f"{told} It matters: {last.point} part{s} too."
    return f"{told} It does not reach the end: {last.point} agree{s}, so that it may be a convention."


def _agreement(found: Comparison) -> str:
    count, exact = len(found.rows), sum(row.verdict == EXACT for row in found.rows)
    points = f"all {count} trace points are" if count > 1 else "the one trace point that both have is"
    if exact == count:
        return f"They agree: {points} equal to the last bit."
    far = max(found.rows, key=lambda row: row.excess)
    return (
        f"They agree: {points} within {'rounding' if found.truth else 'the tolerance'}"
        f"{f' ({exact} to the last bit)' if exact else ''}. "
        f"The largest error, at {far.point}, is {_times(found, far)}."
    )


def _fault(found: Comparison, first: Row) -> str:
    """Who is wrong at the first point that parts, and how far off."""
    if first.shapes is not None:
        return shapes(first)
    if not found.truth:
        told = f"the distance of B from A is {_times(found, first)}"
    else:
        told = f"{first.at_fault} {'are' if ' ' in first.at_fault else 'is'} at fault there, "
        told += _times(found, first)
        if first.excess <= 1.0:
            told += ", but what this operation adds to the error of its inputs is more than that"
    if first.distance is not None and math.isinf(first.distance.worst):
        told += f"; at {first.place} A has {first.value_a:.3g}, B has {first.value_b:.3g}"
    return told


def _times(found: Comparison, row: Row) -> str:
    times = "infinitely many" if math.isinf(row.excess) else f"{row.excess:.3g}"
    return f"{times} times {'what rounding may cost' if found.truth else 'the tolerance'}"


def shapes(row: Row) -> str:
    """The shapes of a point where they differ, in words."""
    assert row.shapes is not None
    if row.distance is None:
        return f"A has shape {row.shapes[0]}, B has {row.shapes[1]}"
    return f"the weights give shape {row.shapes[0]}, both sides have {row.shapes[1]}"


def token_line(found: Comparison, decode: Decode | None = None) -> str:
    """The first next token that differs; empty where there are no logits."""
    if not found.predictions:
        return ""
    token = found.token
    if token is None:
        if found.predictions == 1:
            return "The next token is the same."
        return f"All {found.predictions:,} next tokens are the same."
    moved = f"{found.rows[-1].moved:.3g}"  # the logits are the last point
    if not math.isfinite(token.margin_a + token.margin_b):
        tie = "a logit there is not finite"
    elif token.is_tie:
        tie = f"a tie: rounding may move two logits apart by {moved}"
    elif found.truth:
        tie = f"not a tie: rounding moves two logits apart by no more than {moved}"
    else:
        tie = "whether rounding explains it is not known"
    names = tuple(f"{i} {decode(i)!r}" if decode else str(i) for i in (token.a, token.b))
    row = f"row {token.row}, " if len(found.batch.ids) > 1 else ""
    return (
        f"The first next token that differs, after {row}position {token.position}: A {names[0]} (ahead by "
        f"{token.margin_a:.3g}), B {names[1]} (ahead by {token.margin_b:.3g}): {tie}."
    )


def lines(found: Comparison, *, everything: bool = False, decode: Decode | None = None) -> list[str]:
    """The whole report."""
    b, t = found.batch.ids.shape
    padding = int((~found.batch.real).sum())
    ids = f"{b} x {t}" + (f", {padding} of them padding" if padding else "")
    if found.generated:
        ids += f", the last {found.generated} generated by A"
    head = [
        answer(found),
        "",
        f"A      {_side(found.a)}",
        f"B      {_side(found.b)}",
        f"ids    {ids}",
        f"truth  {found.truth or 'none'}",
        f"noise  {found.noise}",
        *(f"note   {note}" for note in found.notes),
        "",
    ]
    tail = [line for line in (token_line(found, decode),) if line]
    return [*head, *table(found, everything=everything), *([""] if tail else []), *tail]


def _side(side: Any) -> str:
    return side.name if side.dtype is None or side.dtype in side.name else f"{side.name} ({side.dtype})"


def table(found: Comparison, *, everything: bool = False) -> list[str]:
    """A line for each trace point, those around the first that parts where there are many."""
    judged = found.judged
    header = ("point", "B - A", f"error of {judged}", "rounding", "times", "worst element", "verdict")
    cells: list[tuple[str, ...]] = [header]
    chosen = set(range(len(found.rows))) if everything else _chosen(found)
    skipped = 0
    for i, row in enumerate(found.rows):
        if i not in chosen:
            skipped += 1
            continue
        if skipped and found.first is not None:
            cells.append((f"... {skipped} more", "", "", "", "", "", ""))
        skipped = 0
        cells.append(_cells(row, judged, row is found.first))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lined = []
    for line in cells:
        left = line[0].ljust(widths[0])
        middle = [cell.rjust(width) for cell, width in zip(line[1:5], widths[1:5], strict=True)]
        lined.append("  ".join([left, *middle, line[5].ljust(widths[5]), line[6]]).rstrip())
    if len(chosen) < len(found.rows):
        lined.append(f"({len(found.rows)} points; --all shows every one)")
    return lined


def _chosen(found: Comparison) -> set[int]:
    """The rows to show: around the first that parts, each block's last, and the ends."""
    n = len(found.rows)
    if n <= SHOWN:
        return set(range(n))
    ends = {0, 1, n - 2, n - 1}
    last = {block_of(row.point): i for i, row in enumerate(found.rows)}
    if found.first is None:
        worst = max(range(n), key=lambda i: found.rows[i].excess)
        return ends | set(last.values()) | {worst}
    at = found.rows.index(found.first)
    near = set(range(max(0, at - AROUND[0]), min(n, at + AROUND[1] + 1)))
    others = [i for i, row in enumerate(found.rows) if row.verdict in (FAULT, SHAPE)][:12]
    return ends | near | set(others)


def _cells(row: Row, judged: str, is_first: bool) -> tuple[str, ...]:
    if row.distance is None:
        assert row.shapes is not None
        return (
            row.point,
            "",
            "",
            "",
            "",
            f"shape {row.shapes[0]} against {row.shapes[1]}",
            WORDS[SHAPE] + " <- first" * is_first,
        )
    error = row.error_a if judged == "A" else row.error_b
    verdict = WORDS[row.verdict] + (f" of {row.at_fault}" if row.verdict == FAULT and row.at_fault else "")
    return (
        row.point,
        _number(row.distance),
        _number(error),
        _number(row.noise),
        f"{row.excess:.2g}" if row.excess else "0",
        row.place,
        verdict + " <- first" * is_first,
    )


def _number(distance: Distance | None) -> str:
    return "" if distance is None else f"{distance.rms:.2e}" if distance.rms else "0"


def record(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON has it; numbers that are not finite are null."""
    return {
        "agrees": found.agrees,
        "answer": answer(found),
        "first": None if found.first is None else found.first.point,
        "matters": found.matters,
        "a": {"name": found.a.name, "dtype": found.a.dtype},
        "b": {"name": found.b.name, "dtype": found.b.dtype},
        "judged": found.judged,
        "ids": found.batch.ids.tolist(),
        "mask": None if found.batch.mask is None else found.batch.mask.tolist(),
        "generated": found.generated,
        "truth": found.truth or None,
        "noise": found.noise,
        "notes": found.notes,
        "token": _token(found.token),
        "predictions": found.predictions,
        "points": [_row(row) for row in found.rows],
    }


def _token(token: Token | None) -> dict[str, Any] | None:
    if token is None:
        return None
    return token._asdict() | {"margin_a": finite(token.margin_a), "margin_b": finite(token.margin_b)}


def _row(row: Row) -> dict[str, Any]:
    def distance(found: Distance | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {"rms": finite(found.rms), "worst": finite(found.worst), "at": list(found.at)}

    return {
        "point": row.point,
        "verdict": row.verdict,
        "at_fault": row.at_fault or None,
        "shape": list(row.shape),
        "shapes": None if row.shapes is None else [list(shape) for shape in row.shapes],
        "distance": distance(row.distance),
        "error_a": distance(row.error_a),
        "error_b": distance(row.error_b),
        "noise": distance(row.noise),
        "times": finite(row.excess),
        "values": [finite(row.value_a), finite(row.value_b)],
        "positions": [finite(x) for x in row.positions],
    }


def finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
