"""Notes on a comparison: each under its condition alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tinyxp.doctor import Trace, as_side
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.notes import find_notes, list_some
from tinyxp.doctor.verdicts import AtFault, Row, Verdict

DIGITS = np.random.default_rng(0).normal(size=(1, 4, 16))
WIDE = Trace({"embed": DIGITS, "logits": DIGITS}, "float64")
NARROW = Trace({name: DIGITS.astype(np.float32).astype(np.float64) for name in WIDE.points}, "float64")
NOISE = Distance(1e-9, 1e-8, (0, 0, 0), 1.0, 1.0)


def row(**fields: Any) -> Row:
    return Row(**{"point": "logits", "shape": (1, 4, 16), "verdict": Verdict.NOISE, "noise": NOISE} | fields)


def notes(*rows: Row, first: Row | None = None, a: Trace = WIDE, b: Trace = WIDE) -> list[str]:
    side = as_side(lambda ids: ids, "port")
    return list(find_notes(rows, first, ((side, a), (side, b))))


def test_nothing_to_note() -> None:
    assert notes(row()) == []


def test_points_that_one_side_lacks() -> None:
    more = Trace(dict.fromkeys(("embed", "blocks.0.attn.q", "logits"), DIGITS), "float64")
    assert notes(row(), a=more) == ["1 trace points of A are missing in B: blocks.0.attn.q"]
    assert notes(row(), b=more) == ["1 trace points of B are missing in A: blocks.0.attn.q"]
    assert notes(row(), a=more, b=Trace({"logits": DIGITS}, "float64")) == []  # only logits were asked for


def test_a_dtype_that_overflows() -> None:
    infinite = row(noise=NOISE._replace(rms=math.inf), point="final_norm")
    assert notes(infinite, row(noise=infinite.noise), row(noise=None)) == [
        "a correct implementation in this dtype overflows too: no verdict is possible on 2 trace points, "
        "from final_norm on"
    ]


@pytest.mark.parametrize(
    ("excess", "verdict", "noted"),
    [
        (1.5, Verdict.NOISE, True),
        (1.0, Verdict.NOISE, False),
        (1.5, Verdict.FAULT, False),
    ],
)
def test_the_same_error_on_both_sides(excess: float, verdict: Verdict, noted: bool) -> None:
    found = notes(row(excess=excess, verdict=verdict))
    assert bool(found) == noted
    if noted:
        assert found[0].startswith(
            "both sides have the same error at 1 trace points, first at logits, 1.5 times"
        )


@pytest.mark.parametrize(
    ("at_fault", "named"),
    [
        (AtFault.A, "A"),
        (AtFault.B, "B"),
        (AtFault.BOTH, "AB"),
        (AtFault.EITHER, "AB"),
    ],
)
def test_a_side_at_fault_with_fewer_digits_than_its_dtype(at_fault: AtFault, named: str) -> None:
    first = row(verdict=Verdict.FAULT, at_fault=at_fault)
    found = notes(first, first=first, a=NARROW, b=NARROW)
    assert found == [
        f"nearly all values of {name} are float32 numbers; if it is meant to compute in float32, name it "
        "port@:float32"
        for name in named
    ]
    assert notes(first, first=first) == []


def test_a_list_is_cut_after_three_names() -> None:
    assert list_some("abc") == "a, b, c"
    assert list_some("abcd") == "a, b, c..."
