"""The table of all trace points, and the menu that chooses which of them are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinyxp.doctor import Comparison
from tinyxp.html.diff_page import build_diff_page
from tinyxp.html.diff_points import link, point_section
from tinyxp.html.numbers import number

from .comparisons import ALL, agreeing, different, without_reference
from .conftest import Show
from .reading import Outline

GAP = "\N{EN DASH}"


def rows_shown(tab: Any) -> list[str]:
    return tab.evaluate(  # type: ignore[no-any-return]
        "[...document.querySelectorAll('#points-table tbody tr')].filter(row => row.checkVisibility())"
        ".map(row => row.querySelector('code').textContent)"
    )


@pytest.mark.parametrize("make", ALL)
def test_the_table_has_the_numbers_of_every_point(make: Callable[[], Comparison]) -> None:
    comparison = make()
    ((header, *rows),) = Outline(point_section(comparison).body).tables
    assert len(rows) == len(comparison.rows)
    for row, cells in zip(comparison.rows, rows, strict=True):
        shown = dict(zip(header, cells, strict=True))
        assert shown["point"] == row.point + " first difference" * (row is comparison.first)
        assert shown["verdict"].split()[0] == row.verdict
        assert ("error of B" in shown) == bool(comparison.reference)
        if row.shapes is not None:
            assert shown["worst element"] == f"A has shape {row.shapes[0]}, B has {row.shapes[1]}"
            assert shown["times"] == shown["B - A, rms"] == GAP
            continue
        assert row.distance is not None
        assert shown["times"] == number(row.excess)
        assert [shown["B - A, rms"], shown["B - A, worst"]] == [number(x) for x in row.distance[:2]]
        if comparison.reference:
            errors = (row.error_a, row.error_b, row.noise)
            names = ("error of A", "error of B", "rounding error")
            assert [shown[name] for name in names] == [GAP if x is None else number(x.rms) for x in errors]
        if row.distance.worst:
            place = row.place if len(comparison.batch.ids) > 1 else row.place.removeprefix("row 0, ")
            assert shown["worst element"] == f"{place}: A {number(row.value_a)}, B {number(row.value_b)}"
        else:
            assert shown["worst element"] == ""


def test_a_fault_names_its_side_and_an_agreement_has_no_first_difference() -> None:
    assert '<span class="fault">fault in B</span>' in point_section(different()).body
    assert "first difference" not in point_section(agreeing()).body


def test_times_is_explained_by_what_judges() -> None:
    assert "divided by the tolerance" in point_section(without_reference()).explanation
    assert "a correct implementation in B's dtype" in point_section(different()).explanation


def test_a_link_escapes_the_name_of_its_point() -> None:
    assert link('<"') == '<a href="#point-&lt;&quot;"><code>&lt;&quot;</code></a>'


@pytest.mark.parametrize("make", ALL)
def test_all_points_are_shown_first(show: Show, make: Callable[[], Comparison]) -> None:
    comparison = make()
    assert rows_shown(show(build_diff_page(comparison))) == [row.point for row in comparison.rows]


def test_keys_choose_which_points_are_shown(show: Show) -> None:
    comparison = different()
    tab = show(build_diff_page(comparison))
    tab.focus("#show")
    choices = [
        [row.point for row in comparison.rows if row.differs],
        ["embed", "final_norm", "logits"],
        [row.point for row in comparison.rows if row.point.startswith("blocks.0.")],
        [row.point for row in comparison.rows if row.point.startswith("blocks.1.")],
    ]
    for points in choices:
        tab.keyboard.press("ArrowDown")
        assert rows_shown(tab) == points
        assert tab.inner_text("#shown") == f"{len(points)} trace points"


def test_the_answer_leads_to_a_row_even_if_it_is_hidden(show: Show) -> None:
    tab = show(build_diff_page(different()))
    tab.select_option("#show", "0")
    assert "blocks.1.attn.k" not in rows_shown(tab)
    tab.focus(".answer a")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**#point-blocks.1.attn.k")
    assert "blocks.1.attn.k" in rows_shown(tab)
    assert tab.input_value("#show") == "all"


def test_the_header_stays_in_sight(show: Show) -> None:
    tab = show(build_diff_page(different()), window={"width": 1000, "height": 500}, reduced_motion="reduce")
    tab.evaluate("document.getElementById('point-logits').scrollIntoView({block: 'end'})")
    header, box = (
        tab.locator(x).bounding_box() for x in ("#points-table thead th >> nth=0", ".tall .scroll")
    )
    assert header["y"] == pytest.approx(box["y"], abs=1.0)
