"""A whole page: one HTML file with its style, its script and its data, which loads nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinyxp.files import make_folder, replacing
from tinyxp.html.elements import Section
from tinyxp.html.markup import Html, embed_json, escape, fill, join, read_asset


def build_page(
    title: str,
    introduction: Html,
    sections: Sequence[Section],
    *,
    assets: str,
    data: Mapping[str, Any] | None = None,
) -> Html:
    """Return a page as one file.

    ``assets`` names the style and the script that follow those of every page: assets/NAME.css and NAME.js.
    The script finds ``data`` and the data of all sections as one JSON object under the id "data". A content
    security policy forbids requests and every other script.
    """
    style, script = (
        join([read_asset(f"page.{kind}"), read_asset(f"{assets}.{kind}")], "\n") for kind in ("css", "js")
    )
    merged = dict(data or {})
    for section in sections:
        merged.update(section.data)
    return fill(
        """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style></head>
<body>
<header><h1>{title}</h1>
{introduction}
<nav aria-label="On this page"><ul>{links}</ul></nav></header>
<noscript><p>The controls of this page need JavaScript; everything else works without it.</p></noscript>
<main>
{sections}
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
""",
        policy=_policy(script),
        title=escape(title),
        style=style,
        introduction=introduction,
        links=join(
            fill('<li><a href="#{name}">{title}</a></li>', name=escape(s.name), title=escape(s.title))
            for s in sections
        ),
        sections=join(map(_section, sections), "\n"),
        data=embed_json(merged),
        script=script,
    )


def _policy(script: Html) -> Html:
    """Forbid every request, and every script but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        digest=escape(digest),
    )


def _section(section: Section) -> Html:
    return fill(
        '<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>\n'
        "<p>{explanation}</p>\n{body}</section>",
        name=escape(section.name),
        title=escape(section.title),
        explanation=section.explanation,
        body=section.body,
    )


def write_page(path: Path, page: Html) -> None:
    """Write a page whole or not at all, and create its folder if it is missing."""
    with make_folder(path.parent), replacing(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
