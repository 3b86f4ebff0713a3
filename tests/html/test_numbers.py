"""How pages write numbers."""

from __future__ import annotations

from tinyxp.html.numbers import number, percent, round_to, thousands


def test_numbers_have_four_significant_digits() -> None:
    assert [number(x) for x in (0.123456, 1234.56, 1.2345e-5, 0.0)] == ["0.1235", "1235", "1.234e-05", "0"]


def test_a_share_above_0_is_never_shown_as_0() -> None:
    shares = [percent(x) for x in (0.0, 1e-5, 0.00049, 0.0005, 0.1234, 1.0)]
    assert shares == ["0.0 %", "&lt; 0.1 %", "&lt; 0.1 %", "0.1 %", "12.3 %", "100.0 %"]


def test_integers_are_grouped_and_json_is_short() -> None:
    assert thousands(1234567) == "1,234,567"
    assert round_to(0.000123456) == 0.0001235
    assert round_to(123.456, 2) == 120.0
