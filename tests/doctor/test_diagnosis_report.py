"""The report of a diagnosis, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.doctor.cases import case_of
from tests.doctor.models import llama, port, with_weight
from tests.doctor.test_diagnosis import CAUSE
from tinyxp.doctor.diagnosis import Confidence, Diagnosis
from tinyxp.doctor.diagnosis_report import WIDTH, render, to_dict
from tinyxp.doctor.distance import Distance

WRONG = case_of(llama(), port(with_weight(llama(), "blocks.0.attn.o.weight", lambda x: x.T.copy())))
POINTS = tuple(f"blocks.{i}.attn.q" for i in range(9))
BEFORE, AFTER = (Distance(rms, 2 * rms, (), 1.0, 1.0) for rms in (0.5, 1e-7))


def test_an_agreement_is_one_line() -> None:
    (line,) = render(Diagnosis(case_of(llama(), llama()).comparison))
    assert line.startswith("They agree")


def test_a_cause_with_all_that_is_known_of_it() -> None:
    cause = replace(
        CAUSE, points=POINTS, point=POINTS[0], before=BEFORE, after=AFTER, alike=("a", "b", "c", "d", "e")
    )
    diagnosis = Diagnosis(
        WRONG.comparison, (cause,), BEFORE, AFTER, True, "with it B agrees", ("first", "second"), True
    )
    assert render(diagnosis)[2:] == [
        "1. B errs.",
        "   Fix: do not.",
        "   at blocks.0.attn.q and 8 more; error 5.00e-01 -> 1.00e-07; likely",
        "   It would look the same here: a, b, c, d.",
        "",
        "proof   With it B agrees.",
        "check   with these causes in the trusted model, the error falls from 5.00e-01 to 1.00e-07: "
        "rounding at every point",
        "note    first",
        "note    second",
        "note    the search reached its time limit (--seconds)",
    ]


def test_where_a_cause_is() -> None:
    def place(**changes: object) -> str:
        cause = replace(CAUSE, point=POINTS[0], **changes)  # type: ignore[arg-type]
        return next(
            line for line in render(Diagnosis(WRONG.comparison, (cause,))) if line.startswith("   at")
        )

    assert place(points=POINTS[:1]) == "   at blocks.0.attn.q; likely"
    assert place(points=POINTS[:1], blocks=(0,)) == "   at blocks.0.attn.q, in block 0 only; likely"
    assert ", in blocks 0, 1, 2, 3, 4, 5... only;" in place(points=POINTS, blocks=tuple(range(7)))
    kinds = (POINTS[0], "blocks.0.attn.k", "blocks.0.attn.v")
    assert place(points=kinds) == "   at blocks.0.attn.q and 2 more (attn.k, attn.v); likely"


def test_what_is_not_explained() -> None:
    lines = render(Diagnosis(WRONG.comparison))
    assert "No operation is wrong by itself" in lines[2]
    unknown = replace(CAUSE, keys=(), fix="", confidence=Confidence.UNKNOWN)
    lines = render(Diagnosis(WRONG.comparison, (unknown,), BEFORE, AFTER))
    assert not [line for line in lines if "Fix" in line]
    assert lines[-1].endswith("more than rounding")
    assert not [line for line in render(Diagnosis(WRONG.comparison, (), AFTER, BEFORE)) if "check" in line]


def test_lines_are_short() -> None:
    cause = replace(CAUSE, sentence="word " * 60, fix="word " * 60, alike=("a long name",) * 20)
    lines = render(Diagnosis(WRONG.comparison, (cause,), notes=("word " * 60,)))
    assert max(len(line) for line in lines[1:]) <= WIDTH


def test_the_dictionary_is_json() -> None:
    infinite = Distance(float("inf"), float("nan"), (), 1.0, 1.0)
    cause = replace(CAUSE, before=infinite, after=AFTER, blocks=(1,))
    data = json.loads(json.dumps(to_dict(Diagnosis(WRONG.comparison, (cause,))), allow_nan=False))
    (first,) = data["causes"]
    assert (first["keys"], first["blocks"], first["confidence"]) == (["dropout"], [1], "likely")
    assert first["before"] == {"rms": None, "worst": None}
    assert first["after"] == {"rms": 1e-7, "worst": 2e-7}
    assert (data["proof"], data["before"], data["agrees"]) == (None, None, False)
    assert data["comparison"]["first"] == "blocks.0.attn.out"
