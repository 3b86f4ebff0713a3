"""The charts of the error by layer and by position hold every number of the comparison."""

from __future__ import annotations

import re

import numpy as np

from tests.reference import drawn
from tinyxp.doctor import compare
from tinyxp.html.diff_errors import CHARTED, layer_section, position_section
from tinyxp.html.numbers import number

from .comparisons import LLAMA, agreeing, change_trace, different, not_finite, without_reference
from .reading import Outline


def dots(html: str) -> list[str]:
    return re.findall("<title>([^<]*)</title></circle>", html)


def test_the_chart_of_each_layer_has_a_dot_for_every_number() -> None:
    comparison = different()
    section = layer_section(comparison)
    assert section is not None
    expected = []
    for name in CHARTED:
        rows = [comparison.row(f"blocks.{i}.{name}") for i in range(2)]
        expected += [f"error of B, block {i}: {number(row.error_b.rms)}" for i, row in enumerate(rows)]  # type: ignore[union-attr]
        expected += [f"rounding error, block {i}: {number(row.noise.rms)}" for i, row in enumerate(rows)]  # type: ignore[union-attr]
    assert dots(section.body) == expected
    assert section.body.count('class="mark"') == len(CHARTED)
    assert "The vertical line is block 1" in section.explanation


def test_the_side_under_test_is_charted() -> None:
    comparison = compare(change_trace(lambda p: p["logits"].__imul__(np.float32(2))), drawn(LLAMA), [[1, 2]])
    section, row = layer_section(comparison), comparison.row("blocks.0.residual")
    assert section is not None
    assert row is not None
    assert row.error_a is not None
    assert f"error of A, block 0: {number(row.error_a.rms)}" in section.body
    assert "vertical line" not in section.explanation  # the first difference is outside the blocks


def test_layers_need_blocks_that_both_sides_have() -> None:
    assert layer_section(without_reference()) is None


def test_the_chart_of_positions_has_a_dot_and_a_row_for_every_number() -> None:
    comparison = different()
    section = position_section(comparison)
    assert section is not None
    rows = [comparison.first, comparison.rows[-1]]
    assert dots(section.body) == [
        f"{row.point}, position {i}: {number(x)}"  # type: ignore[union-attr]
        for row in rows
        for i, x in enumerate(row.positions)  # type: ignore[union-attr]
    ]
    (table,) = Outline(section.body).tables
    assert table == [
        ["position", "blocks.1.attn.k", "logits"],
        *([str(i), *map(number, x)] for i, x in enumerate(zip(*(r.positions for r in rows), strict=True))),  # type: ignore[union-attr]
    ]
    assert "at <code>blocks.1.attn.k</code> and at <code>logits</code>. A wrong mask" in section.explanation


def test_positions_that_are_all_padding_are_named() -> None:
    comparison = without_reference()
    section = position_section(comparison)
    assert section is not None
    (table,) = Outline(section.body).tables
    assert table[1:] == [
        ["0", "padding"],
        *([str(i + 1), number(x)] for i, x in enumerate(comparison.rows[-1].positions[1:])),
    ]
    assert len(dots(section.body)) == 5


def test_an_agreement_has_no_hint() -> None:
    section = position_section(agreeing())
    assert section is not None
    assert "mask" not in section.explanation


def test_charts_survive_gaps_zeros_and_values_that_are_not_finite() -> None:
    layers, positions = layer_section(not_finite()), position_section(not_finite())
    assert layers is not None
    assert positions is not None
    assert "error of B, block 1: inf" in layers.body
    assert "error of B, block 0" in layers.body
    chart = layers.body[
        layers.body.index("<code>mlp.out</code>") : layers.body.index("<code>residual</code>")
    ]
    assert re.findall("<title>([^<]*), block (.)", chart) == [("error of B", "1"), ("rounding error", "1")]
    assert "blocks.0.attn.weights, position 3: inf" in positions.body
    assert "blocks.0.attn.weights, position 2: 0<" in positions.body
    places = re.findall(r'(?:cx|cy|d|x|y)="([^"]*)"', layers.body + positions.body)
    assert places
    assert not any("nan" in x or "inf" in x for x in places)
