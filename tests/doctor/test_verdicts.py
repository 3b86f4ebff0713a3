"""Rows and comparisons: frozen, and what they say of themselves."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from tinyxp.doctor import compare
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.verdicts import AtFault, Row, Verdict

from .models import IDS, llama, port


def row(verdict: Verdict = Verdict.NOISE) -> Row:
    return Row(point="logits", shape=(1, 3, 7), verdict=verdict)


@pytest.mark.parametrize("verdict", Verdict)
def test_noise_is_no_difference(verdict: Verdict) -> None:
    assert row(verdict).differs == (verdict in ("fault", "carried", "shape"))


def test_the_sides_at_fault() -> None:
    sides = {at_fault.value: sorted(at_fault.sides) for at_fault in AtFault}
    assert sides == {"": [], "A": ["A"], "B": ["B"], "A and B": ["A", "B"], "A or B": ["A", "B"]}


def test_the_worst_element_is_named_if_there_is_one() -> None:
    distance = Distance(0.5, 2.0, (0, 2, 6), 1.0, 1.0)
    assert row().place == ""
    assert replace(row(), distance=distance._replace(worst=0.0)).place == ""
    assert replace(row(), distance=distance).place == "row 0, position 2, unit 6"


def test_results_are_frozen() -> None:
    comparison = compare(llama(), port(llama()), IDS)
    for result, name in ((comparison, "first"), (comparison.rows[0], "verdict"), (comparison.a, "dtype")):
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, None)


def test_whether_it_agrees_and_matters() -> None:
    comparison = compare(llama(), port(llama()), IDS)
    assert (comparison.agrees, comparison.matters) == (True, None)
    differing = replace(comparison, first=row(Verdict.FAULT))
    assert (differing.agrees, differing.matters) == (False, False)
    at_the_end = replace(differing, rows=(*comparison.rows[:-1], row(Verdict.CARRIED)))
    assert at_the_end.matters is True


def test_a_row_by_its_point() -> None:
    comparison = compare(llama(), port(llama()), IDS)
    assert comparison.row("embed") is comparison.rows[0]
    assert comparison.row("blocks.7.attn.q") is None
