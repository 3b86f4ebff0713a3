"""Rows of the catalogue, with a number and without."""

from __future__ import annotations

from tinyxp.doctor.faults import NumberFault
from tinyxp.doctor.faults.change import Change


def number_fault(right: float = 2.0) -> NumberFault:
    return NumberFault(
        "times {value:g}",
        f"{{it}} multiplies by {{value:g}}; it is {right:g}, not {{value:g}}",
        "multiply by 2",
        ("logits",),
        lambda value: Change(answered=slice(int(value))),
        "times",
        right,
        low=1.0,
        high=100.0,
        common=((2.0, 1), (3.0, 2), (50.0, 1)),
    )


def test_a_number_is_filled_in_everywhere() -> None:
    fault = number_fault().at(7.5)
    assert (fault.key, fault.says) == ("times 7.5", "{it} multiplies by 7.5; it is 2, not 7.5")
    assert fault.change is not None
    assert fault.change.answered == slice(7)
    assert (fault.choice, fault.points) == ("times", ("logits",))


def test_the_right_number_is_no_fault() -> None:
    assert [(fault.key, fault.rank) for fault in number_fault().faults()] == [("times 3", 2), ("times 50", 1)]
    assert [fault.key for fault in number_fault(2.001).faults()] == ["times 3", "times 50"]
    assert len(list(number_fault(2.01).faults())) == 3
