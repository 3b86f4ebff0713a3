"""The residual stream, the norm and the units of the MLP on the page of a forward pass."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.measure_blocks import mlp_units, shortest_vector, stream_lengths, stream_points
from tinyxp.html.numbers import number
from tinyxp.html.trace_blocks import _ticks, norm_section, stream_section, unit_section

from .conftest import Show
from .forward_passes import describe, make_run
from .reading import Outline
from .test_trace_page import build


def test_the_stream_has_a_line_and_a_row_for_every_token(run: ForwardPass) -> None:
    body, lengths = stream_section(run).body, stream_lengths(run)
    assert body.count('<path class="curve token"') == len(run.ids)
    (table,) = Outline(body).tables
    assert table[0] == ["point", *map(describe, run.ids)]
    points = [point for point, _ in stream_points(run)]
    assert table[1:] == [[p, *map(number, row)] for p, row in zip(points, lengths.tolist(), strict=True)]


def test_ticks_name_the_last_block_and_leave_room_for_the_embedding() -> None:
    assert _ticks(2) == ["embed", "", "0", "", "1"]
    ticks = _ticks(30)
    assert [(i, tick) for i, tick in enumerate(ticks) if tick][1:] == [
        (2 * (layer + 1), str(layer)) for layer in range(2, 30, 3)
    ]
    assert len(ticks) == 61


def test_the_norm_is_shown_with_its_numbers(run: ForwardPass) -> None:
    vector, section = shortest_vector(run), norm_section(run)
    (table,) = Outline(section.body).tables
    assert [row[0] for row in table[1:]] == [f"\xd7 {x}" for x in ("1", "0.1", "0.01", "0.001", "0")]
    assert [row[4] for row in table[1:]] == [number(x.after) for x in vector.scaled]
    assert table[1][1:3] == [number(vector.scaled[0].before), number(vector.scaled[0].power)]
    assert table[-1][3] == "100.0 %"
    assert table[-1][5] == "0 / 0"
    assert f"at position {vector.position} in <code>{vector.point}</code>" in section.explanation
    assert section.body.count('<svg class="columns"') == 2
    is_rms = run.params.config.norm == "rms"
    assert ("zeros stay zeros" in section.explanation) == is_rms
    assert table[0][2] == ("mean square" if is_rms else "variance")


def test_the_data_of_the_units_is_that_of_the_run(run: ForwardPass) -> None:
    data = unit_section(run).data
    for layer in range(run.params.config.n_layers):
        units, values = mlp_units(run, layer)
        assert data["units"][layer] == units
        np.testing.assert_allclose(data["unit_values"][layer], values, rtol=1e-3)
        reach = np.maximum(4.0, 1.1 * np.abs(values[:, 0]).max(axis=-1))
        np.testing.assert_allclose(data["reach"][layer], reach, rtol=1e-2)


def test_the_plot_has_the_activation_and_a_dot_for_each_token() -> None:
    body = unit_section(make_run("llama")).body
    assert body.count('<circle class="dot"/>') == 7
    (curve,) = re.findall('points="([^"]*)"', body)
    x, y = np.array([point.split(",") for point in curve.split()], dtype=float).T
    np.testing.assert_allclose(-y, x / (1.0 + np.exp(-x)), atol=2e-3)


@pytest.mark.parametrize(
    ("family", "columns"),
    [
        ("llama", ["gate", "silu(gate)", "up", "silu(gate) \xd7 up"]),
        ("gpt2", ["up", "gelu_tanh(up)"]),
        ("relu2", ["up", "relu2(up)"]),
    ],
)
def test_the_values_of_a_unit_are_named_after_the_activation(family: str, columns: list[str]) -> None:
    section = unit_section(make_run(family))
    (table,) = Outline(section.body).tables
    assert table[0] == ["token", *columns]
    assert section.data["plotted"] == columns[:2]
    assert ("multiplies up by silu(gate)" in section.explanation) == (family == "llama")


def test_keys_choose_a_line_of_the_stream(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))
    longest = int(stream_lengths(run).max(axis=0).argmax())
    chosen = tab.locator(".curve.chosen")
    assert chosen.get_attribute("data-curve") == str(longest)
    tab.focus("#stream-token")
    tab.keyboard.press("Home" if longest else "End")
    other = 0 if longest else 6
    assert chosen.count() == 1
    assert chosen.get_attribute("data-curve") == str(other)
    assert chosen.locator("title").text_content() == f"{describe(run.ids[other])} (position {other})"


def test_keys_choose_a_unit_of_each_layer(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))

    def expect(layer: int, k: int) -> None:
        units, values = mlp_units(run, layer)
        cells: Any = tab.evaluate(
            "[...document.querySelectorAll('#unit-table tbody tr')].map("
            "row => [...row.querySelectorAll('td')].map(cell => Number(cell.textContent)))"
        )
        np.testing.assert_allclose(cells, values[k].T, rtol=1e-3)
        assert tab.evaluate("document.getElementById('unit').selectedOptions[0].text") == str(units[k])
        dots = tab.evaluate(
            "[...document.querySelectorAll('.dot')].map(x => [x.cx.baseVal.value, -x.cy.baseVal.value])"
        )
        np.testing.assert_allclose(dots, values[k, :2].T, rtol=1e-3)

    expect(0, 0)
    tab.focus("#unit")
    tab.keyboard.press("ArrowDown")
    expect(0, 1)
    tab.focus("#mlp-layer")
    tab.keyboard.press("ArrowRight")
    expect(1, 1)
