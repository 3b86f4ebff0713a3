"""The letters of the sides."""

from __future__ import annotations

from tests.doctor.cases import case_of
from tests.doctor.models import llama, port


def test_the_side_in_doubt_is_the_one_that_is_judged() -> None:
    case = case_of(llama(), port(llama()))
    assert (case.it, case.other) == ("B", "A")
    turned = case_of(port(llama()), llama())
    assert (turned.it, turned.other) == ("A", "B")
    assert turned.points.keys() == case.points.keys()
