"""Findings as causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.doctor.cases import case_of
from tests.doctor.models import LLAMA_SMALL, edited, llama, port
from tests.doctor.test_finding import error, finding
from tests.doctor.variants import fault_of
from tinyxp.doctor.causes import build_causes
from tinyxp.doctor.diagnosis import Confidence
from tinyxp.doctor.fits.values import read_fault

CASE = case_of(llama(), port(llama()))


def noise() -> Any:
    return replace_excess(0.5)


def replace_excess(excess: float) -> Any:
    return error(1e-8)._replace(excess=excess)


def test_a_cause_says_what_is_wrong_and_what_to_do() -> None:
    found = replace(finding("gelu for silu", 1), after=noise(), only="mlp.hidden")
    (cause,) = build_causes(CASE, [found], agrees_after=True)
    assert cause.sentence == "B uses the exact (erf) GELU; this model has SiLU (at mlp.hidden only)"
    assert (cause.fix, cause.blocks, cause.confidence) == ("use SiLU", (1,), Confidence.CERTAIN)


@pytest.mark.parametrize(
    ("key", "excess", "agrees", "confidence"),
    [
        ("gelu for silu", 0.5, False, "certain"),
        ("gelu for silu", 2.0, True, "certain"),
        ("gelu for silu", 2.0, False, "likely"),
        ("norm in bfloat16", 0.5, True, "likely"),
    ],
)
def test_how_certain_a_cause_is(key: str, excess: float, agrees: bool, confidence: str) -> None:
    found = replace(finding(key), after=replace_excess(excess))
    (cause,) = build_causes(CASE, [found], agrees_after=agrees)
    assert cause.confidence == confidence


def test_what_is_certain_is_proved_if_the_side_agrees_too() -> None:
    exact, narrow = (replace(finding(key), after=noise()) for key in ("gelu for silu", "norm in bfloat16"))
    causes = build_causes(CASE, [exact, narrow, finding("")], agrees_after=True, is_proved=True)
    assert [cause.confidence for cause in causes] == ["proved", "likely", "unknown"]


def test_other_weights_and_nan_are_never_certain() -> None:
    point = "blocks.0.attn.q"
    other = read_fault(f"other weights: {point}", "{its} q errs", "load it", point)
    found = replace(finding("gelu for silu"), faults=(other,), after=noise())
    assert build_causes(CASE, [found], agrees_after=True)[0].confidence == "likely"
    nan = CASE._replace(points={**CASE.points, "blocks.0.mlp.hidden": np.full((2, 12, 64), np.nan)})
    assert (
        build_causes(nan, [replace(finding("gelu for silu"), after=noise())], agrees_after=True)[0].confidence
        == "likely"
    )


def test_what_nothing_explains() -> None:
    unknown = replace(finding(""), points=("blocks.0.mlp.hidden",))
    (cause,) = build_causes(CASE, [unknown], agrees_after=False)
    assert (cause.keys, cause.confidence) == ((), "unknown")
    assert cause.sentence == "no known fault explains blocks.0.mlp.hidden"
    near = replace(unknown, closest=(fault_of(LLAMA_SMALL, "gelu for silu"),), after=error(0.6))
    assert build_causes(CASE, [near], agrees_after=False)[0].sentence.endswith(
        "; the closest, gelu for silu, explains 40% of the error"
    )
    barely = replace(near, after=error(0.95))
    assert build_causes(CASE, [barely], agrees_after=False)[0].sentence == cause.sentence
    spoiling = replace(near, after=noise())
    assert (
        "gelu for silu would, but then other points differ"
        in build_causes(CASE, [spoiling], agrees_after=False)[0].sentence
    )


def test_another_shape_is_said() -> None:
    wrong = case_of(llama(), edited(llama(), "logits", lambda x: x[:, :, :50]))
    unknown = replace(finding(""), point="logits")
    (cause,) = build_causes(wrong, [unknown], agrees_after=False)
    assert cause.sentence == "logits has shape (2, 12, 50); the right shape is (2, 12, 61)"


def test_many_other_weights_are_one_cause() -> None:
    points = [f"blocks.0.attn.{x}" for x in "qkv"] + ["blocks.0.mlp.up"]
    others = [
        replace(finding("gelu for silu"), point=p, faults=(read_fault(f"other weights: {p}", "", "", p),))
        for p in points
    ]
    assert len(build_causes(CASE, others[:3], agrees_after=False)) == 3
    first, second = build_causes(CASE, [*others, finding("gelu for silu")], agrees_after=False)
    assert first.keys == ("other weights",)
    assert ", ".join(points) in first.sentence
    assert second.keys == ("gelu for silu",)
