"""The page of a comparison: the first difference of two sides, whether it matters, and all numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from tinyxp.doctor.verdicts import Comparison
from tinyxp.doctor.wording import Decode, describe_token, summarize
from tinyxp.html.diff_attention import attention_section
from tinyxp.html.diff_errors import layer_section, position_section
from tinyxp.html.diff_points import link, point_section
from tinyxp.html.diff_sides import side_section
from tinyxp.html.elements import EMPTY
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.page import build_page
from tinyxp.html.text import visible


def build_diff_page(comparison: Comparison, decode: Decode | None = None) -> Html:
    """Return a comparison as one self-contained HTML file.

    It holds the answer, the first next token that differs, what was compared, the error by layer and by
    position, the attention weights that differ, and a table of all points. ``decode`` gives the text of an
    id, which is then shown beside it.
    """
    describe_id = _describe_id(decode)
    sections = (
        side_section(comparison, describe_id),
        layer_section(comparison),
        position_section(comparison),
        attention_section(comparison, describe_id),
        point_section(comparison),
    )
    names = [
        side.name if side.name == label else f"{label}: {side.name}"
        for label, side in zip("AB", (comparison.a, comparison.b), strict=True)
    ]
    line = describe_token(comparison, decode)
    introduction = fill(
        '<p class="answer">{answer}</p>{token}',
        answer=_link_points(comparison, summarize(comparison)),
        token=fill("<p>{line}</p>", line=escape(line)) if line else EMPTY,
    )
    return build_page(
        f"{'Agreement' if comparison.agrees else 'Difference'} of {names[0]} and {names[1]}",
        introduction,
        [section for section in sections if section is not None],
        assets="diff",
    )


def _describe_id(decode: Decode | None) -> Callable[[int], str]:
    """Return a function from an id to its number and, if there is a decoder, its text."""
    if decode is None:
        return str
    return lambda index: f"{index} {visible(decode(index).encode(errors='backslashreplace'))}"


def _link_points(comparison: Comparison, text: str) -> Html:
    """Return text whose names of trace points link to their rows."""
    points = {row.point for row in comparison.rows}
    words = re.split(r"(\w[\w.]*\w)", text)
    return join(link(word) if word in points else escape(word) for word in words)
