"""What every page is made of: the skeleton, its style, tables, bars and lines, and how numbers are written.

Text becomes HTML in ``escaped`` alone; every other function takes and gives HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tinyxp.files import make_folder, replacing
from tinyxp.html.style import STYLE

STRONG = 0.83
"""The shade from which on a cell's text changes its colour: both have a contrast of 4.5 or more there."""


class Section(NamedTuple):
    """One part of a page: ``name`` is its anchor, ``explanation`` and ``body`` are HTML."""

    name: str
    title: str
    explanation: str
    body: str


class Line(NamedTuple):
    """One line of a chart: what it is called and its values."""

    label: str
    values: Sequence[float]


def escaped(text: object) -> str:
    """Any text as HTML, fit for attributes too; characters that are not printed become escapes: \\u202e."""
    return html.escape(_printable(str(text)), quote=True)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(data: bytes) -> str:
    """The bytes of a token as one line in which nothing is invisible or steers a terminal or a page.

    A space is ␣; control characters and bytes that are not UTF-8 are escaped as Python does it, \\n and
    \\xe2, and so are other characters that are not printed: \\u202e.
    """

    def shown(c: str) -> str:
        if c == " ":
            return "␣"
        return f"◌{c}" if unicodedata.combining(c) else c

    return "".join(map(shown, _printable(data.decode("utf-8", "backslashreplace"))))


def token(text: str) -> str:
    """The visible text of a token as HTML."""
    return f'<span class="token">{escaped(text)}</span>'


def number(x: float) -> str:
    """Four digits that count: 0.1235, 1235, 1.235e-05."""
    return f"{x:.4g}"


def rounded(x: float, digits: int = 4) -> float:
    """x with so many digits that count, for JSON that is no longer than it need be."""
    return float(f"{x:.{digits}g}")


def percent(share: float) -> str:
    """12.3 %; what is more than nothing does not become 0."""
    return "< 0.1 %" if 0.0 < share < 0.0005 else f"{100.0 * share:.1f} %"


def shade(share: float) -> str:
    """The attributes of a cell as dark as ``share``, from 0 to 1; below 0 in another colour."""
    strong, negative = " strong" if abs(share) >= STRONG else "", " negative" if share < 0.0 else ""
    return f'class="shaded{strong}{negative}" style="--w:{min(abs(share), 1.0):.3f}"'


def cell(content: str, *, share: float | None = None, title: str = "") -> str:
    """A cell of a table; ``share`` shades it."""
    attributes = (f" {shade(share)}" if share is not None else "") + (f' title="{title}"' if title else "")
    return f"<td{attributes}>{content}</td>"


def bar(share: float) -> str:
    """A bar as long as ``share`` of its place, from 0 to 1; a picture of a number that stands beside it."""
    return f'<span class="bar" aria-hidden="true"><span style="--w:{share:.4f}"></span></span>'


def scrolling(body: str, label: str) -> str:
    """What may be wider than the page, in a place that scrolls sideways by itself, with the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{body}</div>'


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    *,
    kind: str = "",
    name: str = "",
) -> str:
    """A table. ``columns`` begins with the one that the rows' headers stand in; the cells of a row are
    elements, as ``cell`` makes them. ``kind`` is its class, ``name`` its id."""
    attributes = (f' class="{kind}"' if kind else "") + (f' id="{name}"' if name else "")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(f'<tr><th scope="row">{header}</th>{"".join(cells)}</tr>\n' for header, cells in rows)
    return scrolling(
        f"<table{attributes}><caption>{caption}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table>",
        caption,
    )


def slider(name: str, label: str, last: int, value: int = 0) -> str:
    """A range input from 0 to ``last``, its label, and an output that a script writes its value to."""
    return (
        f'<label class="field" for="{name}">{label} <input type="range" id="{name}" min="0" max="{last}" '
        f'value="{value}"{" disabled" if last == 0 else ""}> <output id="{name}-value" for="{name}">{value}'
        "</output></label>"
    )


def chart(lines: Sequence[Line], ticks: Sequence[str], *, title: str, log: bool = False) -> str:
    """Lines over the same steps as SVG; ``ticks`` names the steps, "" for those without a name.

    On a logarithmic scale values below a millionth of the largest are drawn there.
    """
    width, height, left, bottom, top = 720.0, 320.0, 58.0, 36.0, 10.0
    floor = max((x for line in lines for x in line.values), default=1.0) * 1e-6 or 1e-6

    def scaled(x: float) -> float:
        return math.log10(max(x, floor)) if log else x

    heights = [scaled(x) for line in lines for x in line.values]
    low, high = min(heights), max(heights)
    low, high = (math.floor(low), math.ceil(high)) if log else (min(low, 0.0), high)
    span = high - low or 1.0
    step = (width - left - 12.0) / max(len(ticks) - 1, 1)

    def point(i: int, y: float) -> str:
        return f"{left + step * i:.1f},{top + (height - top - bottom) * (1.0 - (y - low) / span):.1f}"

    parts = []
    for mark in range(round(low), round(high) + 1) if log else [low + span * k / 4 for k in range(5)]:
        y, label = point(0, mark).partition(",")[2], f"{10.0**mark:,.10g}" if log else number(mark)
        parts.append(f'<path class="grid" d="M{left},{y}H{width - 12.0}"/>')
        parts.append(f'<text x="{left - 8.0}" y="{y}" dy="4" text-anchor="end">{label}</text>')
    for i, tick in enumerate(ticks):
        if tick:
            x = left + step * i
            parts.append(f'<text x="{x:.1f}" y="{height - 14.0}" text-anchor="middle">{tick}</text>')
    for i, line in enumerate(lines):
        points = " ".join(point(j, scaled(x)) for j, x in enumerate(line.values))
        parts.append(
            f'<polyline class="line" data-line="{i}" points="{points}"><title>{line.label}</title></polyline>'
        )
    return (
        f'<svg class="chart" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}">'
        f"{''.join(parts)}</svg>"
    )


def columns(values: Sequence[float], *, title: str) -> str:
    """Numbers as columns up and down from 0, as SVG."""
    largest = max(map(abs, values), default=0.0) or 1.0
    wide = 720.0 / max(len(values), 1)
    marks = (f"M{wide * (i + 0.5):.1f},40v{-36.0 * x / largest:.1f}" for i, x in enumerate(values) if x)
    return (
        f'<svg class="columns" viewBox="0 0 720 80" preserveAspectRatio="none" role="img" '
        f'aria-label="{title}"><path class="grid" d="M0,40H720"/>'
        f'<path class="column" stroke-width="{wide * 0.7:.2f}" d="{"".join(marks)}"/></svg>'
    )


def document(
    title: str,
    introduction: str,
    sections: Sequence[Section],
    *,
    data: Any = None,
    style: str = "",
    script: str = "",
) -> str:
    """The whole page. ``title`` is text, ``introduction`` HTML; ``data`` goes in as JSON under the id "data",
    ``style`` behind that of every page.

    A policy in the page forbids whatever is not in it: no request leaves it, and no script but ``script``
    runs.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    links = "".join(f'<li><a href="#{s.name}">{s.title}</a></li>' for s in sections)
    parts = "\n".join(
        f'<section id="{s.name}" aria-labelledby="{s.name}-title"><h2 id="{s.name}-title">{s.title}</h2>\n'
        f"<p>{s.explanation}</p>\n{s.body}</section>"
        for s in sections
    )
    inside = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(title)}</title>
<style>{STYLE}{style}</style></head>
<body>
<header><h1>{escaped(title)}</h1>
{introduction}
<nav aria-label="On this page"><ul>{links}</ul></nav></header>
<noscript><p>What can be chosen on this page needs JavaScript; the rest is there without it.</p></noscript>
<main>
{parts}
</main>
<script type="application/json" id="data">{inside}</script>
<script>{script}</script>
</body></html>
"""


def write_page(path: Path, text: str) -> None:
    """Writes a page whole or not at all, and the folder that it is to stand in."""
    with make_folder(path.parent), replacing(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
