"""HTML as a type of its own, so that the type checker keeps text and markup apart.

Functions that build markup take and return ``Html``. Only this module turns a ``str`` into ``Html``:
``escape`` any text, ``fill`` and ``join`` templates that are literals in the source, ``read_asset`` files of
this package, and ``embed_json`` data. f-strings and ``+`` give ``str``, which mypy rejects if ``Html`` is
expected. mypy cannot check that a template is a literal; tests/html/test_markup.py does.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, LiteralString, NewType

from tinyxp.html.text import escape_unprintable

Html = NewType("Html", str)


def escape(text: object) -> Html:
    """Return any text as HTML for elements and attributes; unprintable characters become Python escapes."""
    return Html(html.escape(escape_unprintable(str(text)), quote=True))


def fill(template: LiteralString, /, **values: Html | float) -> Html:
    """Return ``template.format(**values)``; the template is a literal, numbers may have a format."""
    return Html(template.format(**values))


def join(parts: Iterable[Html], separator: LiteralString = "") -> Html:
    """Return the parts one after another, with a literal separator between them."""
    return Html(separator.join(parts))


def read_asset(name: str) -> Html:
    """Read a style or a script of this package, which goes into its element as it is."""
    return Html((files("tinyxp.html") / "assets" / name).read_text(encoding="utf-8"))


def embed_json(data: Any) -> Html:
    """Return data as JSON that cannot end its script element. ValueError for numbers that are not finite."""
    return Html(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))
