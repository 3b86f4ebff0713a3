"""The page of a comparison as a whole: its answer, its markup, its size, and how it looks in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.reference import drawn
from tinyxp.doctor import Comparison, compare
from tinyxp.doctor.wording import describe_token, summarize
from tinyxp.html.diff_page import build_diff_page
from tinyxp.html.markup import escape

from .comparisons import ALL, LLAMA, agreeing, change_weight, different
from .conftest import Show
from .reading import Outline, check_markup, data_of, section, text

HOSTILE = "</title><script>document.title='taken'</script>\"'\u202e\ud800"


def hostile() -> Comparison:
    """Names and notes that try to break out of the page."""
    comparison = different()
    a, b = (replace(side, name=HOSTILE) for side in (comparison.a, comparison.b))
    return replace(comparison, a=a, b=b, notes=(HOSTILE,), reference=f"of {HOSTILE}", noise=f"of {HOSTILE}")


@pytest.mark.parametrize("make", ALL)
def test_the_page_begins_with_the_report_s_sentences(make: Callable[[], Comparison]) -> None:
    comparison = make()
    page = build_diff_page(comparison)
    (first,) = re.findall(r'<p class="answer">(.*?)</p>', page)
    assert text(first) == summarize(comparison)
    token = describe_token(comparison)
    assert token
    assert f"</p><p>{escape(token)}</p>" in page


def test_the_points_of_the_answer_link_to_their_rows() -> None:
    page = build_diff_page(different())
    links = re.findall(r'<a href="#(point-[^"]*)"><code>([^<]*)</code></a>', page.partition("<nav")[0])
    assert links == [(f"point-{name}", name) for name in ("blocks.1.attn.k", "logits")]
    assert 'id="point-blocks.1.attn.k"' in page


def test_the_title_names_both_sides() -> None:
    comparison = different()
    named = replace(comparison, a=replace(comparison.a, name="A"), b=replace(comparison.b, name="port"))
    assert "<h1>Difference of A and B: port</h1>" in build_diff_page(named)
    assert "<h1>Agreement of A and B</h1>" in build_diff_page(agreeing())


def test_a_comparison_without_next_tokens_has_no_line_for_them() -> None:
    assert "<p></p>" not in build_diff_page(replace(different(), predictions=0))


def test_ids_have_their_text_if_it_is_known() -> None:
    def decode(i: int) -> str:
        return f" <{i}>\n"

    comparison = different()
    page = build_diff_page(comparison, decode)
    assert comparison.token is not None
    for i in (comparison.token.a, comparison.token.b):
        assert escape(f"{i} {decode(i)!r} (ahead by") in page
    names = [rf"{i} ␣<{i}>\n" for i in comparison.batch.ids[0]]
    listed = re.findall('<span class="token">(.*?)</span>', section(page, "compared"))
    assert [text(x) for x in listed] == names
    assert data_of(page)["queries"] == data_of(page)["keys"] == names


@pytest.mark.parametrize("make", ALL)
def test_the_markup_is_well_formed_and_everything_has_a_name(make: Callable[[], Comparison]) -> None:
    check_markup(build_diff_page(make()))


def test_names_and_notes_are_text() -> None:
    page = build_diff_page(hostile())
    assert page.count("<script") == page.count("</script>") == 2
    assert "\u202e" not in page
    assert page.encode()
    assert page.count("&lt;/title&gt;&lt;script&gt;document.title=&#x27;taken&#x27;") == 9
    Outline(page)


def test_the_page_of_a_deep_model_is_not_large() -> None:
    config = replace(LLAMA, n_layers=30)
    comparison = compare(drawn(config), change_weight(config, "blocks.3.attn.q.weight", np.negative))
    page = build_diff_page(comparison)
    (points,) = Outline(section(page, "points")).tables
    assert len(points) == 1 + 513
    assert len(page.encode()) < 1_000_000


@pytest.mark.parametrize("make", ALL)
def test_every_page_opens_and_is_no_wider_than_the_window(show: Show, make: Callable[[], Comparison]) -> None:
    tab = show(build_diff_page(make()), window={"width": 1400, "height": 900})
    for width in (1400, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_do_nothing(show: Show) -> None:
    page = build_diff_page(hostile(), lambda _: "</title><script>document.title='taken'</script><img src=x>")
    tab = show(page)
    assert tab.title().startswith("Difference of A: </title><script>")
    assert r"\u202e\ud800" in tab.inner_text("dl")
    tab.focus(".heat >> nth=0")
    assert "</title><script>document.title=" in tab.inner_text("#head-0")
    title = tab.evaluate("document.querySelector('.heat rect title').textContent")
    assert "<img␣src=x>" in title
    assert tab.locator("img").count() == 0


def test_dark_if_the_reader_prefers_it(show: Show) -> None:
    def colours(scheme: str) -> list[int]:
        tab = show(build_diff_page(different()), color_scheme=scheme)
        values = [
            tab.evaluate(f"getComputedStyle(document.querySelector('{element}')).{name}")
            for element, name in (
                ("section", "backgroundColor"),
                (".answer", "color"),
                (".chart text", "fill"),
            )
        ]
        return [int(re.findall(r"\d+", x)[0]) for x in values]

    paper, *inks = colours("light")
    assert all(paper > ink + 128 for ink in inks)
    paper, *inks = colours("dark")
    assert all(paper < ink - 120 for ink in inks)
