"""The page of a comparison: the comparison's own numbers, whatever they are, and what a keyboard does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp.doctor import Comparison, compare
from tinyxp.doctor.wording import describe_token, summarize
from tinyxp.html.diff import diff_page
from tinyxp.html.diff_charts import BY_LAYER, CELLS
from tinyxp.html.page import escaped, number

from .conftest import CONFIGS

LLAMA, GPT2 = CONFIGS["llama"], CONFIGS["gpt2"]
HOSTILE = "</title><script>document.title='taken'</script>\"'\u202e\ud800"

Show = Callable[..., Any]


def changed(config: tinyxp.Config, name: str, change: Callable[[np.ndarray], np.ndarray]) -> tinyxp.Params:
    arrays = dict(drawn(config))
    return tinyxp.Params(arrays | {name: change(np.array(arrays[name]))}, config)


def traced(change: Callable[[dict[str, np.ndarray]], object], config: tinyxp.Config = LLAMA) -> Any:
    """A port of the drawn model, with a change to its trace."""

    def port(ids: np.ndarray) -> dict[str, np.ndarray]:
        points = {name: np.array(x) for name, x in tinyxp.trace(drawn(config), ids).items()}
        change(points)
        return points

    return port


def different() -> Comparison:
    return compare(drawn(LLAMA), changed(LLAMA, "blocks.1.attn.k.weight", lambda x: x[::-1].copy()))


def unlike() -> Comparison:
    """Another shape in the MLP, and otherwise nothing."""
    return compare(
        drawn(LLAMA), traced(lambda p: p.update({"blocks.0.mlp.up": p["blocks.0.mlp.up"][..., :-1]}))
    )


def broken() -> Comparison:
    """Not a number, infinity, and a point that is missing."""

    def change(points: dict[str, np.ndarray]) -> None:
        points["blocks.0.attn.weights"][0, 2, 3, 1] = np.nan
        points["blocks.1.residual"][0, 4, 7] = np.inf
        points["logits"][0, 5:] = np.nan
        del points["blocks.0.mlp.out"]

    return compare(drawn(LLAMA), traced(change))


def unjudged() -> Comparison:
    """No weights on either side; two rows, one of them padded."""
    mask = np.ones((2, 6), bool)
    mask[:, 0] = mask[1, :3] = False

    def port(params: tinyxp.Params) -> Any:
        return lambda ids, mask: tinyxp.forward(params, ids, mask=mask)

    other = changed(LLAMA, "blocks.1.mlp.down.weight", np.negative)
    return compare(port(drawn(LLAMA)), port(other), np.arange(12).reshape(2, 6), mask=mask)


def agreeing() -> Comparison:
    return compare(drawn(GPT2), traced(lambda points: points["logits"].__iadd__(np.float32(1e-7)), GPT2))


ALL = (different, unlike, broken, unjudged, agreeing)


class Tables(HTMLParser):
    """The text of each table's rows, all that is told besides, and which elements are left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def section(page: str, name: str) -> str:
    found = re.search(f'<section id="{name}".*?</section>', page, re.DOTALL)
    return "" if found is None else found[0]


def told(page: str) -> str:
    """The answer as text."""
    (answer,) = re.findall(r'<p class="answer">(.*?)</p>', page)
    return unescape(re.sub("<[^>]*>", "", answer))


def points(page: str) -> list[list[str]]:
    (table,) = Tables(section(page, "points")).tables
    return table


def data_of(page: str) -> Any:
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(inside, parse_constant=refuse)


@pytest.mark.parametrize("make", ALL)
def test_the_table_has_the_numbers_of_every_point(make: Callable[[], Comparison]) -> None:
    found = make()
    header, *rows = points(diff_page(found))
    assert len(rows) == len(found.rows)
    for row, cells in zip(found.rows, rows, strict=True):
        shown = dict(zip(header, cells, strict=True))
        assert shown["point"] == row.point + " parts first" * (row is found.first)
        assert shown["verdict"].split()[0] == row.verdict
        if row.shapes is not None:
            assert shown["worst element"] == f"A has shape {row.shapes[0]}, B has {row.shapes[1]}"
            continue
        assert row.distance is not None
        assert shown["times"] == number(row.excess)
        assert [shown["B - A, rms"], shown["B - A, worst"]] == [number(x) for x in row.distance[:2]]
        assert ("error of B" in shown) == bool(found.reference)
        if row.error_a is not None and row.error_b is not None and row.noise is not None:
            assert shown["error of A"] == number(row.error_a.rms)
            assert shown["error of B"] == number(row.error_b.rms)
            assert shown["rounding costs"] == number(row.noise.rms)
        if row.distance.worst:
            place = row.place if len(found.batch.ids) > 1 else row.place.removeprefix("row 0, ")
            values = f"A {number(row.value_a)}, B {number(row.value_b)}"
            assert shown["worst element"] == f"{place}: {values}"


@pytest.mark.parametrize("make", ALL)
def test_the_page_begins_with_the_report_s_sentences(make: Callable[[], Comparison]) -> None:
    found = make()
    page = diff_page(found)
    assert told(page) == summarize(found)
    token = describe_token(found)
    assert token
    assert f"</p><p>{escaped(token)}</p>" in page


def test_the_answer_of_a_difference() -> None:
    found = different()
    assert found.first is not None
    page = diff_page(found)
    links = re.findall(r'<a href="#(point-[^"]*)"><code>([^<]*)</code></a>', page.partition("<nav")[0])
    assert links == [(f"point-{name}", name) for name in ("blocks.1.attn.k", "logits")]
    assert 'id="point-blocks.1.attn.k"' in page
    carried = sum(row.verdict == "carried" for row in found.rows)
    _, counts = Tables(section(page, "compared")).tables
    assert ["carried", "wrong only because its inputs are", str(carried)] in counts
    assert ["fault", "wrong: what this operation does to its inputs is more than rounding", "1"] in counts


def test_the_answer_of_an_agreement() -> None:
    found = agreeing()
    page = diff_page(found)
    assert section(page, "attention") == ""
    assert "parts first" not in page


def test_without_truth_the_distance_is_held_against_the_tolerance() -> None:
    found = unjudged()
    page = diff_page(found)
    assert found.reference == ""
    sides, _ = Tables(section(page, "compared")).tables
    assert {row[-1] for row in sides[1:]} == {"held against the other"}
    (numbers,) = Tables(section(page, "positions")).tables
    assert numbers[1:] == [
        ["0", "padding"],
        *([str(i + 1), number(x)] for i, x in enumerate(found.rows[-1].positions[1:])),
    ]
    assert "the mask leaves 8 of 12 as real tokens" in page


def test_where_only_b_has_weights_a_is_in_doubt() -> None:
    found = compare(traced(lambda p: p["logits"].__imul__(np.float32(2))), drawn(LLAMA))
    page = diff_page(found)
    assert found.judged == "A"
    sides, _ = Tables(section(page, "compared")).tables
    assert [row[-1] for row in sides[1:]] == ["in doubt", "trusted"]
    assert f"error of A, block 0: {number(found.row('blocks.0.residual').error_a.rms)}" in page  # type: ignore[union-attr]


def test_next_tokens_that_are_the_same() -> None:
    page = diff_page(replace(different(), token=None))
    assert "<p>All 32 next tokens are the same.</p>" in page


def test_ids_have_their_text_where_it_is_known() -> None:
    def decode(i: int) -> str:
        return f" <{i}>\n"

    found = different()
    page = diff_page(found, decode)
    assert found.token is not None
    for i in (found.token.a, found.token.b):
        assert escaped(f"{i} {decode(i)!r} (ahead by") in page
    names = [rf"{i} ␣<{i}>\n" for i in found.batch.ids[0]]
    listed = re.findall('<span class="token">(.*?)</span>', section(page, "compared"))
    assert [unescape(x) for x in listed] == names
    assert data_of(page)["queries"] == data_of(page)["keys"] == names
    listed = re.findall('<span class="token">(.*?)</span>', section(diff_page(found), "compared"))
    assert listed == [str(i) for i in found.batch.ids[0]]


def test_the_charts_have_a_dot_for_every_number() -> None:
    found = different()
    page = diff_page(found)
    dots = re.findall("<title>(.*?)</title></circle>", section(page, "layers"))
    wanted = []
    for name in BY_LAYER:
        rows = [found.row(f"blocks.{i}.{name}") for i in range(2)]
        wanted += [f"error of B, block {i}: {number(row.error_b.rms)}" for i, row in enumerate(rows)]  # type: ignore[union-attr]
        wanted += [f"what rounding costs, block {i}: {number(row.noise.rms)}" for i, row in enumerate(rows)]  # type: ignore[union-attr]
    assert dots == wanted
    dots = re.findall("<title>(.*?)</title></circle>", section(page, "positions"))
    assert dots == [
        f"{row.point}, position {i}: {number(x)}"
        for row in (found.first, found.rows[-1])
        for i, x in enumerate(row.positions)  # type: ignore[union-attr]
    ]


def test_charts_survive_gaps_zeros_and_what_is_not_finite() -> None:
    page = diff_page(broken())
    layers = section(page, "layers")
    assert "error of B, block 1: inf" in layers
    assert "error of B, block 0" in layers
    chart = layers[layers.index("<code>mlp.out</code>") : layers.index("<code>residual</code>")]
    assert re.findall("<title>(.*?), block (.)", chart) == [("error of B", "1"), ("what rounding costs", "1")]
    positions = section(page, "positions")
    assert "blocks.0.attn.weights, position 3: inf" in positions
    assert "blocks.0.attn.weights, position 2: 0<" in positions
    drawn_at = re.findall(r'(?:cx|cy|d|x|y)="([^"]*)"', layers + positions)
    assert drawn_at
    assert not any("nan" in x or "inf" in x for x in drawn_at)


def test_the_maps_are_the_weights_of_both_sides() -> None:
    found = different()
    data = data_of(diff_page(found))
    a, b = (t.points["blocks.1.attn.weights"][0] for t in (found.trace_a, found.trace_b))
    heads = np.argsort(-np.abs(b - a).max(axis=(1, 2)), kind="stable")
    for shown, wanted in zip(data["maps"], (a, b, b - a), strict=True):
        np.testing.assert_allclose(shown, wanted[heads].reshape(4, -1), rtol=6e-3, atol=1e-9)
    assert data["queries"] == data["keys"] == [str(i) for i in found.batch.ids[0]]
    assert data["largest"][2] == pytest.approx(np.abs(b - a).max())
    assert "Shown" not in section(diff_page(found), "attention")


def test_a_map_that_is_cut_says_so_and_holds_the_worst() -> None:
    def change(points: dict[str, np.ndarray]) -> None:
        points["blocks.0.attn.weights"][1, 3, 58, 50] += 0.5

    found = compare(drawn(LLAMA), traced(change), np.arange(120).reshape(2, 60))
    page = diff_page(found)
    data = data_of(page)
    assert data["first"] == [12, 12]
    assert len(data["maps"][2]) == 1
    assert len(data["maps"][2][0]) == CELLS * CELLS
    assert data["maps"][2][0][CELLS * (58 - 12) + 50 - 12] == pytest.approx(0.5)
    assert "1 of 4 heads, the others do not differ; row 1 of rows 0 to 1; positions 12 to 59 of 60" in page
    assert "keys 12 to 59 of 60." in page


def test_names_and_notes_are_text() -> None:
    found = different()
    found = replace(
        found,
        a=replace(found.a, name=HOSTILE),
        b=replace(found.b, name=HOSTILE),
        notes=(HOSTILE,),
        reference=f"of {HOSTILE}",
        noise=f"of {HOSTILE}",
    )
    page = diff_page(found)
    assert page.count("<script") == page.count("</script>") == 2
    assert "\u202e" not in page
    assert page.encode()
    assert page.count("&lt;/title&gt;&lt;script&gt;document.title=&#x27;taken&#x27;") == 9
    Tables(page)


@pytest.mark.parametrize("make", ALL)
def test_the_page_is_well_formed_and_its_links_lead_somewhere(make: Callable[[], Comparison]) -> None:
    page = diff_page(make())
    Tables(re.sub("<script.*?</script>|<!doctype html>", "", page, flags=re.DOTALL))
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
    assert re.findall(r'<(?:select|input) id="([^"]*)"', page) == re.findall(
        r'<label[^>]* for="([^"]*)"', page
    )
    for picture in re.findall("<svg[^>]*>", page):
        assert "aria-label=" in picture or 'aria-hidden="true"' in picture


def test_a_deep_model_makes_no_large_page() -> None:
    config = replace(LLAMA, n_layers=30)
    found = compare(drawn(config), changed(config, "blocks.3.attn.q.weight", np.negative))
    page = diff_page(found)
    assert len(points(page)) == 1 + 513
    assert len(page.encode()) < 1_000_000


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a comparison's page; what goes wrong in it, or goes out of it, fails the test at its end."""
    wrong: list[str] = []
    opened = []

    def open_page(found: Comparison, decode: Callable[[int], str] | None = None, **more: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_bytes(diff_page(found, decode).encode())
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


def rows_shown(shown: Any) -> list[str]:
    return shown.evaluate(  # type: ignore[no-any-return]
        "[...document.querySelectorAll('#points-table tbody tr')].filter(row => row.checkVisibility())"
        ".map(row => row.querySelector('code').textContent)"
    )


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("width", [400, 1400])
def test_every_page_opens_and_is_no_wider_than_the_window(
    show: Show, make: Callable[[], Comparison], width: int
) -> None:
    found = make()
    shown = show(found, viewport={"width": width, "height": 900})
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert rows_shown(shown) == [row.point for row in found.rows]


def test_keys_choose_which_points_are_shown(show: Show) -> None:
    found = different()
    shown = show(found)
    shown.focus("#show")
    wanted = [
        [row.point for row in found.rows if row.differs],
        ["embed", "final_norm", "logits"],
        [row.point for row in found.rows if row.point.startswith("blocks.0.")],
        [row.point for row in found.rows if row.point.startswith("blocks.1.")],
    ]
    for names in wanted:
        shown.keyboard.press("ArrowDown")
        assert rows_shown(shown) == names
        assert shown.inner_text("#shown") == f"{len(names)} trace points"


def test_the_answer_leads_to_the_row_even_where_it_is_hidden(show: Show) -> None:
    shown = show(different())
    shown.select_option("#show", "0")
    assert "blocks.1.attn.k" not in rows_shown(shown)
    shown.focus(".answer a")
    shown.keyboard.press("Enter")
    shown.wait_for_url("**#point-blocks.1.attn.k")
    assert "blocks.1.attn.k" in rows_shown(shown)
    assert shown.input_value("#show") == "all"


def test_the_header_stays_in_sight(show: Show) -> None:
    shown = show(different(), viewport={"width": 1000, "height": 500}, reduced_motion="reduce")
    shown.evaluate("document.getElementById('point-logits').scrollIntoView({block: 'end'})")
    header, box = (
        shown.locator(x).bounding_box() for x in ("#points-table thead th >> nth=0", ".tall .scroll")
    )
    assert header["y"] == pytest.approx(box["y"], abs=1.0)


def test_arrow_keys_read_a_map(show: Show) -> None:
    found = different()
    shown = show(found)
    maps = data_of(diff_page(found))["maps"]
    ids = found.batch.ids[0]
    shown.focus(".heat >> nth=4")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"):
        shown.keyboard.press(key)
    a, b, difference = (side[1][32 + 1] for side in maps)
    place = f"position 1 (id {ids[1]}) looks at 1 (id {ids[1]})"
    shown_text = shown.inner_text("#head-1")
    words = re.fullmatch(re.escape(place) + r": A (\S+), B (\S+), B - A (\S+)", shown_text)
    assert words is not None, shown_text
    assert [float(x) for x in words.groups()] == [a, b, difference]
    cursors = shown.evaluate("[...document.querySelectorAll('.cursor')].map(x => x.getAttribute('x'))")
    assert cursors == ["1", "1", "1"]
    cell = shown.locator(".heat >> nth=4").locator('rect[x="1"][y="1"] title')
    assert cell.text_content() == f"{place}: B {words[2]}"


def test_a_map_names_what_is_not_finite(show: Show) -> None:
    shown = show(broken())
    titles = shown.evaluate("[...document.querySelectorAll('.heat .broken title')].map(x => x.textContent)")
    assert [title.rpartition(": ")[2] for title in titles] == ["B nan", "B - A nan"]
    assert shown.locator(".heat >> nth=0").locator("rect").count() == 32 * 33 // 2


def test_hostile_names_do_nothing(show: Show) -> None:
    found = different()
    found = replace(found, a=replace(found.a, name=HOSTILE), notes=(HOSTILE,))
    shown = show(found, lambda _: "</title><script>document.title='taken'</script><img src=x>")
    assert shown.title().startswith("Difference of A: </title><script>")
    assert r"\u202e\ud800" in shown.inner_text("dl")
    shown.focus(".heat >> nth=0")
    assert "</title><script>document.title=" in shown.inner_text("#head-0")
    titles = shown.evaluate("[...document.querySelectorAll('.heat rect title')].map(x => x.textContent)")
    assert "<img␣src=x>" in titles[0]
    assert shown.locator("img").count() == 0


def test_dark_where_the_reader_wants_it_dark(show: Show) -> None:
    def colours(scheme: str) -> list[int]:
        shown = show(different(), color_scheme=scheme)
        found = [
            shown.evaluate(f"getComputedStyle(document.querySelector('{what}')).{which}")
            for what, which in (
                ("section", "backgroundColor"),
                (".answer", "color"),
                (".curves text", "fill"),
            )
        ]
        return [int(re.findall(r"\d+", x)[0]) for x in found]

    paper, *inks = colours("light")
    assert all(paper > ink + 128 for ink in inks)
    paper, *inks = colours("dark")
    assert all(paper < ink - 120 for ink in inks)
