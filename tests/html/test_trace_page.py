"""The page of a forward pass: what it holds, and what a person at a keyboard sees of it in a browser."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyxp.html import measure
from tinyxp.html.measure import Run
from tinyxp.html.trace import page
from tinyxp.html.trace_attention import ONES, SIXTIES, packed

from .conftest import HOSTILE, make_run, spelled

Show = Callable[..., Any]


def data_of(text: str) -> dict[str, Any]:
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(inside)


def unpacked(text: str) -> list[int]:
    values, high = [], 0
    for c in text:
        if c in SIXTIES:
            high = 60 * (SIXTIES.index(c) + 1)
        else:
            values.append(high + ONES.index(c))
            high = 0
    return values


def test_weights_are_packed_in_thousandths() -> None:
    assert len(set(ONES + SIXTIES)) == 60 + 16
    assert unpacked(packed(np.arange(1001) / 1000)) == list(range(1001))
    assert packed(np.array([0.0, 0.0594, 0.06, 1.0])) == f"0{ONES[59]}Y0{SIXTIES[15]}{ONES[40]}"


def test_the_data_is_that_of_the_run(run: Run) -> None:
    data, config = data_of(page(run, "m", "c")), run.params.config
    assert data["tokens"] == [spelled(i) for i in run.ids]
    assert data["group"] == config.n_heads // config.n_kv_heads
    for layer in range(config.n_layers):
        weights, unmasked, future = measure.attention(run, layer)
        for head in range(config.n_heads):
            lower = weights[head][np.tril_indices(7)]
            np.testing.assert_allclose(unpacked(data["masked"][layer][head]), 1000 * lower, atol=0.51)
            found = unpacked(data["unmasked"][layer][head])
            np.testing.assert_allclose(found, 1000 * unmasked[head].ravel(), atol=0.51)
        np.testing.assert_allclose(data["future"][layer], future, rtol=1e-3)
        units, values = measure.valve(run, layer)
        assert data["units"][layer] == units
        np.testing.assert_allclose(data["valve"][layer], values, rtol=1e-3)
        np.testing.assert_allclose(
            data["reach"][layer], np.maximum(4.0, 1.1 * np.abs(values[:, 0]).max(axis=-1)), rtol=1e-2
        )
    assert ("hands" in data) == (config.position == "rope")
    if config.position == "rope":
        np.testing.assert_allclose(data["hands"], measure.clocks(run)[2], atol=1e-3)


class Outline(HTMLParser):
    """Which elements there are, and that they are closed in turn."""

    EMPTY = frozenset(("meta", "input", "br"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), tag
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY and tag not in ("path", "circle", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_every_control_has_a_name(run: Run) -> None:
    outline = Outline()
    outline.feed(page(run, "m", "c"))
    assert outline.open == []
    ids = Counter(attrs["id"] for _, attrs in outline.found if "id" in attrs)
    assert max(ids.values()) == 1
    named = {attrs["for"] for tag, attrs in outline.found if tag == "label" and "for" in attrs}
    wrapped = {"mask", None}  # inside their labels, heads without an id
    controls = [attrs.get("id") for tag, attrs in outline.found if tag in ("input", "select")]
    assert set(controls) <= named | wrapped
    links = [attrs["href"] for tag, attrs in outline.found if tag == "a"]
    assert len(links) == 9
    assert {str(link).removeprefix("#") for link in links} <= set(ids)
    tables = sum(tag == "table" for tag, _ in outline.found)
    assert tables == sum(tag == "caption" for tag, _ in outline.found)
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in outline.found if tag == "th")
    pictures = [attrs for tag, attrs in outline.found if tag == "svg"]
    assert all({"aria-label", "aria-labelledby", "aria-hidden"} & set(attrs) for attrs in pictures)


def test_the_lens_and_the_parameters_stand_in_their_tables() -> None:
    run = make_run("gpt2")
    text = page(run, "m", "c")
    best, mass = measure.lens(run)
    cells = re.findall(
        r'title="id (\d+)">(?:<strong>)?<span class="token">.*?<small>([\d.]+) %</small>', text
    )
    assert [int(i) for i, _ in cells] == best.ravel().tolist()
    np.testing.assert_allclose([float(p) for _, p in cells], 100 * mass.ravel(), atol=0.051)
    bold = re.findall(r'title="id \d+">(<strong>)?<span', text)
    assert [bool(x) for x in bold] == (best == best[-1]).ravel().tolist()
    assert 7 < sum(map(bool, bold)) < best.size
    d, f, layers = 8, 32, 3
    attention, mlp = 4 * d * d + 4 * d, 2 * d * f + d + f
    for group, count in {
        "embedding": 11 * d,
        "positions": 16 * d,
        "attention": layers * attention,
        "MLPs": layers * mlp,
        "norms": (2 * layers + 1) * 2 * d,
        "total": 27 * d + layers * (attention + mlp) + (2 * layers + 1) * 2 * d,
    }.items():
        assert f'<th scope="row">{group}</th><td>{count:,}</td>' in text
    assert ">head</th>" not in text
    assert "The head is the embedding again (tied), so that its matrix counts once." in text


def test_a_long_sequence_says_what_is_left_out() -> None:
    run = make_run("llama", tuple(range(3, 93)), str)
    text = page(run, "m", "c")
    assert "All 90 tokens were computed" in text
    assert "shows the last 64" in text
    assert text.count('class="chip token"') == 90
    data = data_of(text)
    assert data["first"] == 26
    assert data["tokens"] == [str(i) for i in range(29, 93)]
    assert not data["written"]
    assert "left out" not in page(make_run("llama"), "m", "c")


def test_one_token_one_layer() -> None:
    """Sliders with nothing to choose are disabled, and nothing divides by zero."""
    text = page(make_run("llama", (5,)), "m", "c")
    assert 'id="query" min="0" max="0" value="0" disabled' in text


def test_numbers_that_are_not_finite_are_refused() -> None:
    run = make_run("llama")
    points = dict(run.points)
    points["blocks.0.mlp.up"] = points["blocks.0.mlp.up"] * np.float32("nan")
    broken = Run(run.params, run.ids, points, run.text)
    with pytest.raises(
        ValueError, match=r"^trace point blocks\.0\.mlp\.up holds numbers that are not finite"
    ):
        page(broken, "m", "c")


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a run's page; what goes wrong in it, or goes out of it, fails the test at its end."""
    wrong: list[str] = []
    opened = []

    def open_page(run: Run, **more: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(page(run, "a <model>", "float32 on numpy"), encoding="utf-8")
        shown = browser.new_page(**more)
        opened.append(shown)
        shown.on("console", lambda message: wrong.append(f"console: {message.text}"))
        shown.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        shown.on("request", lambda request: request.url.startswith("file://") or wrong.append(request.url))
        shown.goto(path.as_uri())
        return shown

    yield open_page
    for shown in opened:
        shown.close()
    assert wrong == []


def weights_shown(shown: Any) -> list[list[str]]:
    return shown.evaluate(
        "[...document.querySelectorAll('#attention-table tbody tr')].map("
        "row => [...row.querySelectorAll('td')].map(cell => cell.title))"
    )


def test_keys_choose_layer_and_head(show: Show, run: Run) -> None:
    shown = show(run)

    def expect(layer: int, head: int) -> None:
        weights = measure.attention(run, layer)[0][head]
        found = weights_shown(shown)
        for i in range(7):
            np.testing.assert_allclose([float(x) for x in found[i][: i + 1]], weights[i, : i + 1], atol=6e-4)
            assert set(found[i][i + 1 :]) <= {"hidden by the mask"}
        assert f"Layer {layer}, head {head}," in shown.inner_text("#attention-told")

    expect(0, 0)
    shown.focus("#layer")
    shown.keyboard.press("ArrowRight")
    expect(1, 0)
    assert shown.inner_text("#layer-value") == "1"
    shown.keyboard.press("Tab")
    shown.keyboard.press("ArrowRight")
    expect(1, 1)
    shown.keyboard.press("Tab")  # the row that looks
    shown.keyboard.press("Home")
    assert shown.inner_text("#query-value") == "0"
    assert "looks at" in (told := shown.inner_text("#attention-told"))
    assert f"{spelled(3)} (position 0) with 1.000." in told
    assert shown.locator("#attention-table tr.chosen").count() == 1


def test_the_switch_takes_the_mask_off_and_puts_it_on_again(show: Show, run: Run) -> None:
    shown = show(run)
    before = weights_shown(shown)
    assert shown.locator("#attention-table td.masked").count() == 21
    shown.focus("#mask")
    shown.keyboard.press("Space")
    unmasked, future = (x[0] for x in measure.attention(run, 0)[1:])
    np.testing.assert_allclose(np.array(weights_shown(shown), dtype=float), unmasked, atol=6e-4)
    assert shown.locator("#attention-table td.masked").count() == 0
    assert shown.locator("#attention-table td.future").count() == 21
    assert f"Without the mask {100 * future:.1f} % of this head" in shown.inner_text("#attention-told")
    shown.keyboard.press("Space")
    assert weights_shown(shown) == before
    assert "Without the mask" not in shown.inner_text("#attention-told")


def test_the_hands_of_the_clocks_follow_the_slider(show: Show) -> None:
    run = make_run("llama")
    shown = show(run)
    hands = measure.clocks(run)[2]

    def expect(position: int) -> None:
        found = shown.evaluate(
            "[...document.querySelectorAll('.hand')].map(x => [x.x2.baseVal.value, x.y2.baseVal.value])"
        )
        wanted = [[50 + 38 * sin, 50 - 38 * cos] for cos, sin in hands[:, position]]
        np.testing.assert_allclose(found, wanted, atol=0.01)

    expect(6)
    shown.focus("#position")
    for _ in range(3):
        shown.keyboard.press("ArrowLeft")
    expect(3)
    assert shown.inner_text("#position-value") == f"3, {spelled(1)}"
    assert shown.inner_text(".clock .turns >> nth=0") == "0.4775 turns so far"
    shown.keyboard.press("End")
    expect(63)
    assert shown.inner_text("#position-value") == "63"


def test_learned_positions_have_a_table_instead(show: Show) -> None:
    run = make_run("gpt2")
    shown = show(run)
    assert shown.locator(".clock").count() == 0
    found = shown.evaluate("[...document.querySelectorAll('#similarity-table td')].map(x => Number(x.title))")
    np.testing.assert_allclose(found, measure.position_similarity(run).ravel(), atol=6e-4)


def test_a_line_of_the_residual_stream_is_chosen_by_keys(show: Show, run: Run) -> None:
    shown = show(run)
    loudest = int(measure.stream_norms(run).max(axis=0).argmax())
    chosen = shown.locator(".line.chosen")
    assert chosen.get_attribute("data-line") == str(loudest)
    shown.focus("#trail")
    shown.keyboard.press("Home" if loudest else "End")
    other = 0 if loudest else 6
    assert chosen.count() == 1
    assert chosen.get_attribute("data-line") == str(other)
    assert chosen.locator("title").text_content() == f"{spelled(run.ids[other])} (position {other})"


def test_a_valve_of_each_layer(show: Show, run: Run) -> None:
    shown = show(run)

    def expect(layer: int, k: int) -> None:
        units, values = measure.valve(run, layer)
        found = shown.evaluate(
            "[...document.querySelectorAll('#valve-table tbody tr')].map("
            "row => [...row.querySelectorAll('td')].map(cell => Number(cell.textContent)))"
        )
        np.testing.assert_allclose(found, values[k].T, rtol=1e-3)
        assert shown.evaluate("document.getElementById('unit').selectedOptions[0].text") == str(units[k])
        dots = shown.evaluate(
            "[...document.querySelectorAll('.dot')].map(x => [x.cx.baseVal.value, -x.cy.baseVal.value])"
        )
        np.testing.assert_allclose(dots, values[k, :2].T, rtol=1e-3)

    expect(0, 0)
    shown.focus("#unit")
    shown.keyboard.press("ArrowDown")
    expect(0, 1)
    shown.focus("#mlp-layer")
    shown.keyboard.press("ArrowRight")
    expect(1, 1)


def test_a_chip_tells_its_id_on_focus(show: Show, run: Run) -> None:
    shown = show(run)
    chips = shown.locator(".chip")
    assert chips.all_text_contents() == [spelled(i) for i in run.ids]
    chips.nth(0).focus()
    shown.keyboard.press("Tab")
    assert shown.inner_text("#chip-told") == f"Position 1: {spelled(1)}, id 1"


def test_every_control_is_reached_by_tab_and_shows_it(show: Show) -> None:
    shown = show(make_run("llama"))
    reached = set()
    for _ in range(60):
        shown.keyboard.press("Tab")
        found = shown.evaluate(
            "(x => [x.id || x.name || x.className, getComputedStyle(x).outlineStyle,"
            " x.nextElementSibling ? getComputedStyle(x.nextElementSibling).outlineStyle : ''])"
            "(document.activeElement)"
        )
        assert "solid" in found[1:] or found[0] == "", found
        reached.add(found[0])
    assert {"layer", "head", "query", "mask", "position", "trail", "mlp-layer", "unit", "scroll"} <= reached


def test_hostile_tokens_are_text(show: Show, run: Run) -> None:
    shown = show(run)
    assert shown.title() == "One forward pass of a <model>"
    assert shown.locator("img").count() == 0
    assert shown.locator("script").count() == 2
    text = HOSTILE[3].decode()
    assert shown.locator("#attention-table thead th").nth(1).text_content() == text
    assert shown.locator(".chip").nth(2).text_content() == r"\n\x1b"


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_no_wider_than_the_window(show: Show, run: Run, width: int) -> None:
    shown = show(run, viewport={"width": width, "height": 800})
    assert shown.evaluate("document.documentElement.scrollWidth") == width


def test_dark_where_the_reader_wants_it_dark(show: Show) -> None:
    grounds = [
        show(make_run("llama"), color_scheme=scheme).evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in ("light", "dark")
    ]
    assert grounds == ["rgb(251, 250, 247)", "rgb(21, 23, 26)"]


def test_a_long_page_works_too(show: Show) -> None:
    run = make_run("llama", tuple(range(3, 93)), str)
    shown = show(run)
    found = weights_shown(shown)
    weights = measure.attention(run, 0)[0][0]
    np.testing.assert_allclose([float(x) for x in found[63]], weights[63], atol=6e-4)
    assert shown.locator("#attention-table td").nth(0).text_content() == ""
    assert shown.inner_text("#query-value") == "89"
