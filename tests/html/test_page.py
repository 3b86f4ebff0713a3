"""The frame of every page: what it forbids, what it holds, and colours that can be read."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from tinyxp.html.elements import STRONG, Section
from tinyxp.html.markup import escape, fill, read_asset
from tinyxp.html.page import build_page, write_page

from .reading import Outline, data_of

STYLE = read_asset("page.css")
BODY = fill("<p>body</p>")


def test_a_policy_forbids_all_but_the_page_s_own_script() -> None:
    page = build_page("t", BODY, [], assets="diff")
    assert page.count("<script") == page.count("</script>") == 2
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    assert script == read_asset("page.js") + "\n" + read_asset("diff.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_style_of_a_page_follows_that_of_all() -> None:
    page = build_page("t", BODY, [], assets="trace")
    assert page.count("<style>") == page.count("</style>") == 1
    assert f"<style>{STYLE}\n{read_asset('trace.css')}</style>" in page


def test_sections_are_linked_and_bring_their_data() -> None:
    sections = [
        Section("one", "1 < 2", fill("<em>why</em>"), BODY, {"x": "</script><!--"}),
        Section("two", "Two", escape("<em>"), BODY),
    ]
    page = build_page("a < b", BODY, sections, assets="diff", data={"y": [1]})
    assert data_of(page) == {"x": "</script><!--", "y": [1]}
    assert "<title>a &lt; b</title>" in page
    assert '<li><a href="#one">1 &lt; 2</a></li><li><a href="#two">Two</a></li>' in page
    assert '<section id="one" aria-labelledby="one-title"><h2 id="one-title">1 &lt; 2</h2>' in page
    assert "<p><em>why</em></p>" in page
    assert "<p>&lt;em&gt;</p>" in page
    Outline(page)


def test_a_page_is_written_with_its_folder_and_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_page(path, escape("a"))
    write_page(path, fill("é\ud800"))
    assert path.read_bytes() == "é\\ud800".encode()
    assert list(path.parent.iterdir()) == [path]


def luminance(rgb: list[float]) -> float:
    """WCAG 2's relative luminance of a colour in sRGB, 0 to 255."""
    linear = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in (x / 255 for x in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_shade(scheme: int) -> None:
    """A contrast of 4.5 or more, what WCAG 2 requires of text at level AA."""
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
            text = colour["on-strong" if share >= STRONG else "on-weak"]
            assert contrast(text, shade) >= 4.5, (hue, share)
