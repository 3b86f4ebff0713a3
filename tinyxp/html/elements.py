"""The elements that pages consist of: sections, tables, bars and controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tinyxp.html.markup import Html, escape, fill, join

STRONG = 0.83
"""The shade from which a cell's text changes colour. Both colours have a contrast of at least 4.5 there."""

EMPTY = fill("")


class Section(NamedTuple):
    """A section of a page. ``name`` is its anchor; ``data`` is merged into the data of the page's script."""

    name: str
    title: str
    explanation: Html
    body: Html
    data: Mapping[str, Any] = {}


def token(text: str) -> Html:
    """Return the visible text of a token."""
    return fill('<span class="token">{text}</span>', text=escape(text))


def code(text: str) -> Html:
    """Return a name of the model or of the program."""
    return fill("<code>{text}</code>", text=escape(text))


def cell(content: Html, *, share: float | None = None, title: Html = EMPTY) -> Html:
    """Return a table cell, as dark as ``share``, -1 to 1; negative shares have another colour."""
    return fill(
        "<td{shade}{title}>{content}</td>",
        shade=EMPTY if share is None else _shade(share),
        title=fill(' title="{title}"', title=title) if title else EMPTY,
        content=content,
    )


def _shade(share: float) -> Html:
    return fill(
        ' class="shaded{strong}{negative}" style="--w:{width:.3f}"',
        strong=fill(" strong" if abs(share) >= STRONG else ""),
        negative=fill(" negative" if share < 0.0 else ""),
        width=min(abs(share), 1.0),
    )


def bar(share: float) -> Html:
    """Return a bar of length ``share``, 0 to 1. Screen readers skip it, as the number is beside it."""
    return fill(
        '<span class="bar" aria-hidden="true"><span style="--w:{share:.4f}"></span></span>', share=share
    )


def scroll_box(body: Html, label: str) -> Html:
    """Return a box that scrolls sideways on its own, also with the keyboard, if its body is too wide."""
    return fill(
        '<div class="scroll" tabindex="0" role="region" aria-label="{label}">{body}</div>',
        label=escape(label),
        body=body,
    )


def table(
    caption: str,
    columns: Sequence[Html],
    rows: Sequence[tuple[Html, Sequence[Html]]],
    *,
    kind: str = "",
    name: str = "",
) -> Html:
    """Return a table in a scroll box.

    ``columns`` are the headers, that of the row headers first. A row is its header and its cells, as ``cell``
    returns them. ``kind`` is the class of the table, ``name`` its id.
    """
    body = (
        fill('<tr><th scope="row">{header}</th>{cells}</tr>\n', header=header, cells=join(cells))
        for header, cells in rows
    )
    element = fill(
        "<table{kind}{name}><caption>{caption}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>",
        kind=fill(' class="{kind}"', kind=escape(kind)) if kind else EMPTY,
        name=fill(' id="{name}"', name=escape(name)) if name else EMPTY,
        caption=escape(caption),
        head=join(fill('<th scope="col">{column}</th>', column=column) for column in columns),
        body=join(body),
    )
    return scroll_box(element, caption)


def slider(name: str, label: str, last: int, value: int = 0) -> Html:
    """Return a range input from 0 to ``last`` with a label, and an output for its value."""
    return fill(
        '<label class="field" for="{name}">{label} <input type="range" id="{name}" min="0" max="{last}" '
        'value="{value}"{disabled}> <output id="{name}-value" for="{name}">{value}</output></label>',
        name=escape(name),
        label=escape(label),
        last=last,
        value=value,
        disabled=fill(" disabled" if last == 0 else ""),
    )


def select(name: str, label: str, options: Sequence[tuple[str, str]], chosen: int = 0) -> Html:
    """Return a menu with a label. Each option is a value and its text; ``chosen`` is an index."""
    items = (
        fill(
            '<option value="{value}"{selected}>{text}</option>',
            value=escape(value),
            selected=fill(" selected" if i == chosen else ""),
            text=escape(text),
        )
        for i, (value, text) in enumerate(options)
    )
    return fill(
        '<label class="field" for="{name}">{label} <select id="{name}">{items}</select></label>',
        name=escape(name),
        label=escape(label),
        items=join(items),
    )


def controls(*fields: Html) -> Html:
    """Return a row of controls."""
    return fill('<div class="controls">{fields}</div>', fields=join(fields))


def details(summary: str, body: Html) -> Html:
    """Return a body that opens with a click on its summary."""
    return fill("<details><summary>{summary}</summary>{body}</details>", summary=escape(summary), body=body)
