"""The maps of attention weights: the weights of both sides, and how a keyboard reads them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.reference import drawn
from tinyxp.doctor import compare
from tinyxp.html.diff_attention import MAX_CELLS, attention_section
from tinyxp.html.diff_page import build_diff_page

from .comparisons import IDS, LLAMA, agreeing, change_trace, different, not_finite
from .conftest import Show


def test_the_maps_are_the_weights_of_both_sides() -> None:
    comparison = different()
    section = attention_section(comparison, str)
    assert section is not None
    traces = (comparison.trace_a, comparison.trace_b)
    a, b = (trace.points["blocks.1.attn.weights"][0] for trace in traces)
    heads = np.argsort(-np.abs(b - a).max(axis=(1, 2)), kind="stable")
    for shown, weights in zip(section.data["maps"], (a, b, b - a), strict=True):
        np.testing.assert_allclose(shown, weights[heads].reshape(4, -1), rtol=6e-3, atol=1e-9)
    assert section.data["queries"] == section.data["keys"] == [str(i) for i in IDS[0]]
    assert section.data["first"] == [0, 0]
    assert section.data["largest"] == [1.0, 1.0, pytest.approx(np.abs(b - a).max())]
    assert re.findall("<h3>Head (.)</h3>", section.body) == [str(i) for i in heads]
    assert "Shown" not in section.explanation


def test_a_map_that_is_cut_says_so_and_holds_the_worst() -> None:
    def change(points: dict[str, np.ndarray]) -> None:
        points["blocks.0.attn.weights"][1, 3, 58, 50] += 0.5

    comparison = compare(drawn(LLAMA), change_trace(change), np.arange(120).reshape(2, 60))
    section = attention_section(comparison, str)
    assert section is not None
    (cells,) = section.data["maps"][2]
    assert section.data["first"] == [12, 12]
    assert len(cells) == MAX_CELLS * MAX_CELLS
    assert cells[MAX_CELLS * (58 - 12) + 50 - 12] == pytest.approx(0.5)
    assert section.explanation.endswith(
        " Shown: 1 of 4 heads, the others do not differ; row 1 of rows 0 to 1; positions 12 to 59 of 60; "
        "keys 12 to 59 of 60."
    )


def test_weights_that_agree_have_no_maps() -> None:
    assert attention_section(agreeing(), str) is None


def test_without_a_finite_difference_the_explanation_says_so() -> None:
    section = attention_section(not_finite(), str)
    assert section is not None
    assert "They agree on all finite numbers." in section.explanation
    assert section.data["largest"] == [1.0, 1.0, 1.0]
    assert section.data["maps"][1][0].count("nan") == 1


def test_arrow_keys_read_a_map(show: Show) -> None:
    page = build_diff_page(different())
    tab, section = show(page), attention_section(different(), str)
    assert section is not None
    tab.focus(".heat >> nth=4")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"):
        tab.keyboard.press(key)
    numbers = [side[1][IDS.shape[1] + 1] for side in section.data["maps"]]
    place = f"position 1 (id {IDS[0, 1]}) attends to 1 (id {IDS[0, 1]})"
    shown = tab.inner_text("#head-1")
    match = re.fullmatch(re.escape(place) + r": A (\S+), B (\S+), B - A (\S+)", shown)
    assert match is not None, shown
    assert [float(x) for x in match.groups()] == numbers
    cursors = tab.evaluate("[...document.querySelectorAll('.cursor')].map(x => x.getAttribute('x'))")
    assert cursors == ["1", "1", "1"]
    cell = tab.locator(".heat >> nth=4").locator('rect[x="1"][y="1"] title')
    assert cell.text_content() == f"{place}: B {match[2]}"


def test_a_map_names_what_is_not_finite(show: Show) -> None:
    tab = show(build_diff_page(not_finite()))
    titles = tab.evaluate("[...document.querySelectorAll('.heat .broken title')].map(x => x.textContent)")
    assert [title.rpartition(": ")[2] for title in titles] == ["B nan", "B - A nan"]
    assert tab.locator(".heat >> nth=0").locator("rect").count() == 32 * 33 // 2
