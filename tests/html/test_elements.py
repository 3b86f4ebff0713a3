"""Cells, tables and controls: their markup, and what is escaped."""

from __future__ import annotations

from tinyxp.html import elements
from tinyxp.html.markup import escape

from .reading import Outline

HOSTILE = "<b>\"'"


def test_a_token_and_code_are_text() -> None:
    assert elements.token(HOSTILE) == '<span class="token">&lt;b&gt;&quot;&#x27;</span>'
    assert elements.code(HOSTILE) == "<code>&lt;b&gt;&quot;&#x27;</code>"


def test_a_cell_is_as_dark_as_its_share() -> None:
    x = escape("x")
    assert elements.cell(x) == "<td>x</td>"
    assert elements.cell(x, share=0.5) == '<td class="shaded" style="--w:0.500">x</td>'
    assert 'class="shaded strong negative" style="--w:1.000"' in elements.cell(x, share=-2.0)
    assert 'class="shaded strong"' in elements.cell(x, share=elements.STRONG)
    assert elements.cell(x, title=escape('"')) == '<td title="&quot;">x</td>'


def test_a_bar_is_hidden_from_screen_readers() -> None:
    assert (
        elements.bar(0.25) == '<span class="bar" aria-hidden="true"><span style="--w:0.2500"></span></span>'
    )


def test_a_table_has_a_caption_headers_and_a_box_that_the_keyboard_scrolls() -> None:
    row = (escape("one"), [elements.cell(escape("<"))])
    outline = Outline(elements.table(HOSTILE, [escape("point"), escape("n")], [row], kind="points", name="t"))
    assert outline.tables == [[["point", "n"], ["one", "<"]]]
    box, table = outline.elements[:2]
    assert box == ("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": HOSTILE})
    assert table == ("table", {"class": "points", "id": "t"})
    assert outline.attributes("scope", "th") == ["col", "col", "row"]
    assert "<table><caption>" in elements.table("c", [], [])


def test_a_slider_with_nothing_to_choose_is_disabled() -> None:
    label, control, output = Outline(elements.slider("layer", HOSTILE, 3, 1)).elements
    assert label[1]["for"] == control[1]["id"] == output[1]["for"] == "layer"
    assert (control[1]["min"], control[1]["max"], control[1]["value"]) == ("0", "3", "1")
    assert output[1]["id"] == "layer-value"
    assert " disabled" not in elements.slider("layer", "Layer", 1)
    assert 'max="0" value="0" disabled' in elements.slider("layer", "Layer", 0)


def test_a_menu_chooses_an_option_and_escapes_all() -> None:
    menu = elements.select("show", "Show", [("a", "A"), (HOSTILE, HOSTILE)], chosen=1)
    options = [attrs for tag, attrs in Outline(menu).elements if tag == "option"]
    assert options == [{"value": "a"}, {"value": HOSTILE, "selected": None}]
    assert menu.count("&lt;b&gt;") == 2


def test_controls_and_details_hold_their_parts() -> None:
    x = escape("x")
    assert elements.controls(x, x) == '<div class="controls">xx</div>'
    assert elements.details("<", x) == "<details><summary>&lt;</summary>x</details>"
