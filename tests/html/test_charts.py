"""Line charts on a logarithmic scale, and columns."""

from __future__ import annotations

import math
import re

import pytest

from tinyxp.html.charts import Curve, column_chart, legend, line_chart
from tinyxp.html.markup import escape

from .reading import Outline


def points_of(chart: str) -> list[list[tuple[str, float, float]]]:
    """The commands of each curve."""
    paths = re.findall(r'<path class="curve [^>]* d="([^"]*)"', chart)
    return [
        [(c, float(x), float(y)) for c, x, y in re.findall(r"([ML])([\d.]+),([\d.]+)", path)]
        for path in paths
    ]


def test_equal_ratios_are_equally_far_apart() -> None:
    curves = [Curve("one", [1.0, 10.0, 100.0]), Curve("two", [100.0, 0.0, 1.0])]
    first, second = points_of(line_chart(curves, title="lengths", axis="block"))
    assert [x for _, x, _ in first] == [x for _, x, _ in second] == [58.0, 382.0, 706.0]
    low, middle, high = (y for _, _, y in first)
    assert high < middle < low
    assert middle - high == pytest.approx(low - middle, abs=0.11)
    assert second[0][2] == high
    assert second[2][2] == low
    assert second[1][2] > low  # 0 has no logarithm: below the scale


def test_0_and_values_that_are_not_finite_are_outside_the_scale() -> None:
    values = [0.0, 1e-3, 1.0, math.inf, math.nan]
    chart = line_chart([Curve("error", values)], title="t", axis="block")
    (points,) = points_of(chart)
    zero, low, high, infinite, nan = (y for _, _, y in points)
    assert zero > low > high > infinite == nan
    labels = re.findall(r'text-anchor="end">([^<]*)<', chart)
    assert labels == ["0.001", "0.01", "0.1", "1", "0", "inf"]
    assert not re.search(r'(?:cx|cy|d|x|y)="[^"]*(?:nan|inf)', chart)


def test_a_gap_interrupts_a_line_and_has_no_dot() -> None:
    chart = line_chart([Curve("error", [None, 1.0, 2.0, None, 3.0])], title="t", axis="block")
    assert [c for c, _, _ in points_of(chart)[0]] == ["M", "L", "M"]
    assert re.findall("<title>([^<]*)</title></circle>", chart) == [
        "error, block 1: 1",
        "error, block 2: 2",
        "error, block 4: 3",
    ]
    assert "<circle" not in line_chart([Curve("error", [1.0])], title="t", axis="block", dots=False)


def test_ticks_are_numbers_unless_they_are_named() -> None:
    def ticks(chart: str) -> list[str]:
        return re.findall(r'text-anchor="middle">([^<]*)<', chart)

    curve = Curve("c", [1.0] * 30)
    assert ticks(line_chart([curve], title="t", axis="block", size=(300, 200))) == [
        *("0", "6", "12", "18", "24"),
        "block",
    ]
    named = ["embed", *[""] * 28, "<"]
    assert ticks(line_chart([curve], title="t", axis="block", ticks=named)) == ["embed", "&lt;", "block"]


def test_many_decades_share_grid_lines() -> None:
    chart = line_chart([Curve("c", [1e-12, 1e6])], title="t", axis="block")
    assert re.findall(r'text-anchor="end">([^<]*)<', chart) == [
        *("1e-12", "1e-09", "1e-06", "0.001", "1", "1,000", "1e+06"),
    ]


def test_a_chart_of_one_step_or_of_no_value() -> None:
    ((point,),) = points_of(line_chart([Curve("c", [2.0])], title="t", axis="block"))
    assert point[1] == (58.0 + 720.0) / 2.0
    assert points_of(line_chart([Curve("c", [None, None])], title="t", axis="block")) == [[]]


def test_a_mark_is_at_its_step() -> None:
    curve = Curve("c", [1.0, 2.0, 3.0])
    assert '<path class="mark" d="M382.0,0V' in line_chart([curve], title="t", axis="block", mark=1)
    assert 'class="mark"' not in line_chart([curve], title="t", axis="block")


def test_names_are_text() -> None:
    chart = line_chart([Curve("<a>", [1.0], '"')], title='"t"', axis="<x>", ticks=["<y>"])
    svg, *_ = Outline(chart).elements
    assert svg[1]["aria-label"] == '"t"'
    assert not {"a", "x", "y"} & {tag for tag, _ in Outline(chart).elements}


def test_a_legend_has_a_sample_of_each_kind() -> None:
    text = legend([("error", escape("<")), ("cost", escape("rounding"))])
    assert re.findall('<path class="curve ([^"]*)"', text) == ["error", "cost"]
    assert "&lt;</span>" in text
    assert "rounding</span>" in text


def test_columns_go_up_and_down_from_the_middle() -> None:
    assert 'd="M90.0,40v-36.0M270.0,40v18.0M630.0,40v-9.0"' in column_chart([2.0, -1.0, 0.0, 0.5], title="x")
    assert 'd=""' in column_chart([0.0], title="x")
