"""What pages are made of: text that stays text, numbers, tables, lines, colours that can be read."""

from __future__ import annotations

import json
import re

import pytest

from tinyxp.html import page
from tinyxp.html.style import STYLE


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b" the", "␣the"),
        (b"\n\t\x00\x1b[31m\x7f", r"\n\t\x00\x1b[31m\x7f"),
        (b"\xe2\x80", r"\xe2\x80"),
        ("é Ж 中".encode(), "é␣Ж␣中"),
        ("\u202e\u2028\xad".encode(), r"\u202e\u2028\xad"),
        ("\u0301".encode(), "◌\u0301"),
        (b"<b>", "<b>"),
        (b"", ""),
    ],
)
def test_every_byte_of_a_token_is_visible_and_harmless(data: bytes, text: str) -> None:
    assert page.visible(data) == text
    assert all(c.isprintable() for c in text)


def test_text_is_escaped_for_elements_and_attributes() -> None:
    assert page.token("<a href='x'>&\"") == (
        '<span class="token">&lt;a href=&#x27;x&#x27;&gt;&amp;&quot;</span>'
    )
    assert page.escaped("\u202e\ud800\n") == r"\u202e\ud800\n"


def test_numbers_and_shares() -> None:
    assert [page.number(x) for x in (0.123456, 1234.56, 1.2345e-5, 0.0)] == [
        "0.1235",
        "1235",
        "1.234e-05",
        "0",
    ]
    assert [page.percent(x) for x in (0.0, 1e-5, 0.1234, 1.0)] == ["0.0 %", "< 0.1 %", "12.3 %", "100.0 %"]
    assert page.rounded(0.000123456) == 0.0001235


def test_a_cell_is_as_dark_as_its_share() -> None:
    assert page.cell("x") == "<td>x</td>"
    assert page.cell("x", share=0.5) == '<td class="shaded" style="--w:0.500">x</td>'
    assert 'class="shaded strong negative" style="--w:1.000"' in page.cell("x", share=-2.0)


def test_data_cannot_end_its_element() -> None:
    text = page.document("a < b", "<p>in</p>", [], data={"x": "</script><!--"}, script="1;")
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(inside) == {"x": "</script><!--"}
    assert text.count("<script") == text.count("</script>") == 2
    assert "<title>a &lt; b</title>" in text


def test_a_page_s_own_style_stands_behind_that_of_all() -> None:
    text = page.document("", "", [], style=".own { color: red; }")
    assert text.count("<style>") == text.count("</style>") == 1
    assert f"<style>{STYLE}.own {{ color: red; }}</style>" in text


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        page.document("", "", [], data=[float("nan")])


def test_the_lines_of_a_chart() -> None:
    lines = [page.Line("one", [1.0, 10.0, 100.0]), page.Line("two", [100.0, 0.0, 1.0])]
    chart = page.chart(lines, ["a", "", "c"], title="lengths", log=True)
    first, second = (
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(r'points="([^"]*)"', chart)
    )
    assert [x for x, _ in first] == [x for x, _ in second] == [58.0, 383.0, 708.0]
    (_, top), (_, middle), (_, bottom) = sorted(first, key=lambda point: point[1])
    assert middle - top == pytest.approx(bottom - middle, abs=0.11)
    assert second[0][1] == first[2][1]
    assert second[2][1] == first[0][1]
    assert second[1][1] == max(y for _, y in first + second)  # 0 has no logarithm: a millionth of the largest
    assert [name in chart for name in (">a</text>", ">c</text>", ">100</text>", "<title>one</title>")] == [
        True
    ] * 4


def test_columns_go_up_and_down_from_the_middle() -> None:
    assert 'd="M90.0,40v-36.0M270.0,40v18.0M630.0,40v-9.0"' in page.columns([2.0, -1.0, 0.0, 0.5], title="x")


def luminance(rgb: list[float]) -> float:
    """WCAG 2's relative luminance of a colour in sRGB, 0 to 255."""
    linear = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in (x / 255 for x in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_shade(scheme: int) -> None:
    """A contrast of 4.5 or more, what WCAG 2 asks of text at level AA."""
    palette = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[scheme]
    colour = {
        name: [float(int(value[i : i + 2], 16)) for i in (0, 2, 4)]
        for name, value in re.findall(r"--([\w-]+): #(\w{6});", palette)
    }
    for ground in ("paper", "card"):
        for ink in ("ink", "faint", "accent"):
            assert contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
    for hue in ("heat", "cold"):
        for step in range(101):
            share = step / 100
            shade = [share * h + (1 - share) * c for h, c in zip(colour[hue], colour["card"], strict=True)]
            text = colour["on-strong" if share >= page.STRONG else "on-weak"]
            assert contrast(text, shade) >= 4.5, (hue, share)
