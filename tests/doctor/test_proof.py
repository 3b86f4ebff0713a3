"""Proof by the side's own run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.doctor.cases import case_of
from tests.doctor.models import llama, port, with_weight
from tinyxp import Params
from tinyxp.doctor.differences import ParameterDifferences, parameter_differences
from tinyxp.doctor.proof import Proof, points_showing, prove

NAME = "blocks.1.attn.o.weight"


def transposed(params: Params) -> Params:
    return with_weight(params, NAME, lambda x: x.T.copy())


def proof_of(b: Any, *points: str) -> Proof | None:
    case = case_of(llama(), b)
    return prove(case, points, parameter_differences(case.base, case.side))


def test_parameters_that_the_points_show() -> None:
    both = with_weight(transposed(llama()), "blocks.0.attn.v.weight", lambda x: x + 0.0)
    assert proof_of(both, "blocks.1.attn.out") == Proof("parameters", (NAME,))


def test_all_that_differ_if_those_are_not_enough() -> None:
    two = with_weight(transposed(llama()), "blocks.0.mlp.up.weight", lambda x: 2 * x)
    proof = proof_of(two, "blocks.1.attn.out")
    assert proof is not None
    assert set(proof.names) == {NAME, "blocks.0.mlp.up.weight"}


def test_values() -> None:
    case = case_of(llama(), transposed(llama()))
    point = "blocks.1.attn.out"
    assert prove(case, [point], ParameterDifferences({}, 0)) == Proof("values", (point,))
    assert prove(case, ["blocks.0.attn.out"], ParameterDifferences({}, 0)) is None
    assert prove(case, [], ParameterDifferences({}, 0)) is None


def test_a_side_that_cannot_be_patched_has_no_proof() -> None:
    assert proof_of(port(transposed(llama())), "blocks.1.attn.out") is None


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("embed.weight", {"embed", "logits"}),
        ("pos_embed.weight", {"embed"}),
        ("head.weight", {"logits"}),
        ("blocks.2.attn.o.bias", {"blocks.2.attn.out"}),
        ("blocks.2.mlp.down.weight", {"blocks.2.mlp.out"}),
        ("blocks.2.attn_norm.weight", {"blocks.2.attn_norm"}),
        ("final_norm.bias", {"final_norm"}),
    ],
)
def test_where_a_parameter_shows(name: str, points: set[str]) -> None:
    assert points_showing(name) == points


def test_a_proof_in_words() -> None:
    names = tuple(f"blocks.{i}.attn.q.weight" for i in range(5))
    assert Proof("parameters", names[:1]).describe("B", "A") == (
        "with A's own blocks.0.attn.q.weight in place of its own, B agrees from there on"
    )
    assert " and 2 more, " in Proof("values", names).describe("B", "A")
    assert np.all([name in Proof("values", names).describe("B", "A") for name in names[:3]])
