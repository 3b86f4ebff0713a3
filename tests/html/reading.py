"""What tests read out of a page: its sections, tables, data and elements."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

VOID = frozenset(("meta", "input", "br"))
"""Elements of HTML without an end; those of SVG end with ``/>`` here."""


class Outline(HTMLParser):
    """All elements of a page, the text of its tables' cells, and that every element is closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def attributes(self, name: str, *tags: str) -> list[str | None]:
        """The values of an attribute, of these elements or of all."""
        return [attrs[name] for tag, attrs in self.elements if name in attrs and (tag in tags or not tags)]


def check_markup(page: str) -> Outline:
    """Check that a page is well formed, that its links lead somewhere, and that everything has a name."""
    outline = Outline(page)
    ids = outline.attributes("id")
    assert len(ids) == len(set(ids))
    assert {str(link).removeprefix("#") for link in outline.attributes("href", "a")} <= set(ids)
    labels = outline.attributes("for", "label")
    assert outline.attributes("id", "select") == [
        x for x in labels if x in outline.attributes("id", "select")
    ]
    wrapped = {"mask"}  # inside its label
    assert set(outline.attributes("id", "input")) <= set(labels) | wrapped
    assert set(labels) <= set(ids)
    tags = [tag for tag, _ in outline.elements]
    assert tags.count("table") == tags.count("caption") > 0
    scopes = [attrs.get("scope") for tag, attrs in outline.elements if tag == "th"]
    assert set(scopes) <= {"row", "col"}
    for tag, attrs in outline.elements:
        if tag == "svg":
            assert {"aria-label", "aria-labelledby", "aria-hidden"} & set(attrs)
    return outline


def section(page: str, name: str) -> str:
    match = re.search(f'<section id="{name}".*?</section>', page, re.DOTALL)
    return "" if match is None else match[0]


def text(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", html))


def data_of(page: str) -> Any:
    """The data of the page's script, strictly JSON."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(data, parse_constant=refuse)
