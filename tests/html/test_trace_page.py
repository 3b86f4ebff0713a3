"""The page of a forward pass as a whole: its markup, its tables, and what a keyboard reaches."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.markup import Html
from tinyxp.html.measure_blocks import logit_lens
from tinyxp.html.trace_page import build_trace_page

from .conftest import Show
from .forward_passes import HOSTILE, LONG_IDS, describe, make_run
from .reading import check_markup, data_of


def build(run: ForwardPass) -> Html:
    return build_trace_page(run, "a <model>", "float32 on numpy")


def test_the_markup_is_well_formed_and_everything_has_a_name(run: ForwardPass) -> None:
    outline = check_markup(build(run))
    assert len(outline.attributes("href", "a")) == 9


@pytest.mark.parametrize(
    ("family", "facts"),
    [
        ("llama", "4 heads on 2 key/value heads of size 8, MLPs of 64 (swiglu), RMSNorm, rotary positions"),
        ("gpt2", "2 heads of size 4, MLPs of 32 (gelu_tanh), LayerNorm, learned positions"),
        ("relu2", "MLPs of 64 (relu2)"),
    ],
)
def test_the_introduction_describes_the_model(family: str, facts: str) -> None:
    introduction = build(make_run(family)).partition("<nav")[0]
    assert facts in introduction
    assert "computed in float32 on numpy" in introduction


def test_the_data_names_the_tokens(run: ForwardPass) -> None:
    data = data_of(build(run))
    assert data["tokens"] == [describe(i) for i in run.ids]
    assert data["first"] == 0
    assert data["strong"] == 830
    assert ("hands" in data) == (run.params.config.position == "rope")


def test_the_lens_is_a_table() -> None:
    run = make_run("gpt2")
    page = build(run)
    best, probabilities = logit_lens(run)
    cells = re.findall(
        r'title="id (\d+)">(?:<strong>)?<span class="token">.*?<small>([\d.]+) %</small>', page
    )
    assert [int(i) for i, _ in cells] == best.ravel().tolist()
    np.testing.assert_allclose([float(p) for _, p in cells], 100 * probabilities.ravel(), atol=0.051)
    bold = re.findall(r'title="id \d+">(<strong>)?<span', page)
    assert [bool(x) for x in bold] == (best == best[-1]).ravel().tolist()
    assert 7 < sum(map(bool, bold)) < best.size


def test_the_parameters_are_counted_by_group() -> None:
    page = build(make_run("gpt2"))
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
        assert f'<th scope="row">{group}</th><td>{count:,}</td>' in page
    assert ">head</th>" not in page
    assert "The head is the embedding again (tied), so its matrix counts once." in page


def test_a_long_sequence_says_what_is_left_out() -> None:
    page = build(make_run("llama", LONG_IDS, str))
    assert "All 90 tokens were computed" in page
    assert "shows the last 64" in page
    assert page.count('class="chip token"') == 90
    data = data_of(page)
    assert data["first"] == 26
    assert data["tokens"] == [str(i) for i in LONG_IDS[26:]]
    assert not data["show_numbers"]
    assert "tokens were computed" not in build(make_run("llama"))


def test_numbers_that_are_not_finite_are_rejected() -> None:
    run = make_run("llama")
    points = dict(run.points)
    points["blocks.0.mlp.up"] = points["blocks.0.mlp.up"] * np.float32("nan")
    with pytest.raises(
        ValueError, match=r"^trace point blocks\.0\.mlp\.up holds numbers that are not finite"
    ):
        build(replace(run, points=points))


def test_hostile_tokens_are_text(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))
    assert tab.title() == "One forward pass of a <model>"
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 2
    assert tab.locator("#attention-table thead th").nth(1).text_content() == HOSTILE[3].decode()
    assert tab.locator(".chip").nth(2).text_content() == r"\n\x1b"


def test_a_chip_shows_its_id_on_focus(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))
    chips = tab.locator(".chip")
    assert chips.all_text_contents() == [describe(i) for i in run.ids]
    assert tab.inner_text("#chip-description") == "7 tokens"
    chips.nth(0).focus()
    tab.keyboard.press("Tab")
    assert tab.inner_text("#chip-description") == f"Position 1: {describe(1)}, id 1"


def test_every_control_is_reached_by_tab_and_shows_it(show: Show) -> None:
    tab = show(build(make_run("llama")))
    tab.evaluate(
        "window.reached = []; document.addEventListener('focusin', ({target}) => reached.push(["
        "target.id || target.name || target.className, getComputedStyle(target).outlineStyle,"
        " target.nextElementSibling ? getComputedStyle(target.nextElementSibling).outlineStyle : '']))"
    )
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement === document.body"):
            break
    reached = tab.evaluate("reached")
    assert all("solid" in outlines or name == "" for name, *outlines in reached), reached
    names = {name for name, *_ in reached}
    assert names >= {
        *("layer", "head", "query", "mask", "position"),
        *("stream-token", "mlp-layer", "unit", "scroll"),
    }


def test_the_page_is_no_wider_than_the_window(show: Show, run: ForwardPass) -> None:
    tab = show(build(run), window={"width": 1400, "height": 800})
    for width in (1400, 400):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_dark_if_the_reader_prefers_it(show: Show) -> None:
    page = build(make_run("llama"))
    grounds = [
        show(page, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert grounds == ["rgb(251, 250, 247)", "rgb(21, 23, 26)"]
