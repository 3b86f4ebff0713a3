"""The page of a comparison: where two sides part, whether it matters, and every number behind that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tinyxp.doctor.distance import RMS_FACTOR, WORST_FACTOR
from tinyxp.doctor.points import block_of
from tinyxp.doctor.verdicts import Comparison, Row, Verdict
from tinyxp.doctor.wording import Decode, describe_shapes, describe_token, summarize
from tinyxp.html.diff_charts import attention, layers, link, positions
from tinyxp.html.diff_script import SCRIPT, STYLE
from tinyxp.html.page import Section, cell, document, escaped, number, table, token, visible

MEANINGS = {
    Verdict.EXACT: "A and B are equal to the last bit",
    Verdict.NOISE: "apart, by no more than rounding explains",
    Verdict.FAULT: "wrong: what this operation does to its inputs is more than rounding",
    Verdict.CARRIED: "wrong only because its inputs are",
    Verdict.SHAPE: "the arrays have other shapes",
}
IDS = 48
"""How many ids are listed at most."""


def diff_page(found: Comparison, decode: Decode | None = None) -> str:
    """A comparison as one HTML page that needs nothing beside it: the answer in a sentence, the first next
    token that differs, what was compared, the error by layer and by position, the attention weights where
    they part, and a table of all points. ``decode`` gives the text of an id, which then stands beside it."""

    def spelled(index: int) -> str:
        return (
            str(index)
            if decode is None
            else f"{index} {visible(decode(index).encode(errors='backslashreplace'))}"
        )

    data: dict[str, Any] = {}
    line = describe_token(found, decode)
    sections = (
        _compared(found, spelled),
        layers(found),
        positions(found),
        attention(found, spelled, data),
        _points(found),
    )
    names = [
        side.name if side.name == label else f"{label}: {side.name}"
        for label, side in zip("AB", (found.a, found.b), strict=True)
    ]
    return document(
        f"{'Agreement' if found.agrees else 'Difference'} of {names[0]} and {names[1]}",
        f'<p class="answer">{_linked(found, summarize(found))}</p>'
        f"{f'<p>{escaped(line)}</p>' if line else ''}",
        [section for section in sections if section is not None],
        data=data,
        style=STYLE,
        script=SCRIPT,
    )


def _linked(found: Comparison, text: str) -> str:
    """Text as HTML in which the names of points lead to their rows."""
    points = {row.point for row in found.rows}
    return re.sub(r"\w[\w.]*\w", lambda word: link(word[0]) if word[0] in points else word[0], escaped(text))


def _compared(found: Comparison, spelled: Callable[[int], str]) -> Section:
    """The sides, what went into them, and what they are judged by."""
    ids, mask = found.batch.ids, found.batch.mask
    roles = ("in doubt", "trusted") if found.judged == "A" else ("trusted", "in doubt")
    sides = [
        (
            name,
            [
                cell(f'<span class="long">{escaped(side.name)}</span>'),
                cell(trace.dtype),
                cell(role if found.reference else "held against the other"),
            ],
        )
        for name, side, trace, role in zip(
            "AB", (found.a, found.b), (found.trace_a, found.trace_b), roles, strict=True
        )
    ]
    shown = " ".join(token(spelled(i)) for i in ids.ravel()[:IDS].tolist()) + " ..." * (ids.size > IDS)
    told = f"{ids.shape[0]} &times; {ids.shape[1]} (rows, positions)"
    if mask is not None:
        told += f"; the mask leaves {int(mask.sum())} of {mask.size} as real tokens"
    if found.generated:
        told += f"; the last {found.generated} of each row are A's greedy continuation"
    facts = {
        "ids": f"{told}<br>{shown}",
        "truth": escaped(found.reference or "none: neither side has weights here"),
        "noise": escaped(found.noise),
    }
    if found.reference:
        facts["limit"] = (
            f"rounding may cost {RMS_FACTOR:g} times the root mean square of the noise, {WORST_FACTOR:g} "
            "times its worst, and one rounding of the result; more is a fault"
        )
    if found.notes:
        facts["notes"] = "<br>".join(map(escaped, found.notes))
    listed = "".join(f"<dt>{name}</dt><dd>{fact}</dd>" for name, fact in facts.items())
    counts = [
        (
            f"<strong>{word}</strong>",
            [cell(meaning), cell(str(sum(row.verdict == word for row in found.rows)))],
        )
        for word, meaning in MEANINGS.items()
    ]
    return Section(
        "compared",
        "What was compared",
        "The same ids through both sides, and every point that both have.",
        f"{table('The sides', ('side', 'name', 'dtype', 'role'), sides, kind='words')}<dl>{listed}</dl>"
        + table("The verdicts", ("verdict", "meaning", "points"), counts, kind="words"),
    )


def _points(found: Comparison) -> Section:
    """Every point, and a choice of which to see."""
    blocks = sorted({b for b in (block_of(row.point) for row in found.rows) if b is not None})
    parting = sum(row.differs for row in found.rows)
    options = [("all", f"all {len(found.rows)} points"), ("parts", f"the {parting} that part")]
    options += [("outside", "those outside of the blocks")] if blocks else []
    options += [(str(block), f"block {block}") for block in blocks]
    choice = "".join(f'<option value="{value}">{text}</option>' for value, text in options)
    measured = ["error of A", "error of B", "rounding costs"] if found.reference else []
    columns = ("point", "verdict", "times", "B - A, rms", "B - A, worst", *measured, "worst element")
    body = [_row(found, row) for row in found.rows]
    if found.reference:
        told = (
            "The errors of A and B are their distances from the truth; what rounding costs is the error of a "
            f"right implementation in {found.judged}'s dtype; all three as root mean squares. <em>Times</em> "
            "is an error over what rounding may cost"
        )
    else:
        told = "<em>Times</em> is the distance over the tolerance"
    return Section(
        "points",
        "Point by point",
        f"In the order of the computation. {told}: above 1 it is a fault.",
        '<div class="controls"><label class="field" for="show">Show '
        f'<select id="show">{choice}</select></label>'
        f'<output id="shown" for="show"></output></div>'
        f'<div class="tall">{table("Trace points", columns, body, kind="points", name="points-table")}</div>',
    )


def _row(found: Comparison, row: Row) -> tuple[str, list[str]]:
    """The header and the cells of a point's row; the header carries what the script chooses by."""
    block, name = block_of(row.point), escaped(row.point)
    header = (
        f'<code id="point-{name}" data-block="{"outside" if block is None else block}"'
        f"{' data-parts' if row.differs else ''}>{name}</code>"
        + (' <strong class="first">parts first</strong>' if row is found.first else "")
    )
    fault = f" in {row.at_fault}" if row.verdict == Verdict.FAULT and row.at_fault else ""
    distances = [row.error_a, row.error_b, row.noise] if found.reference else []
    place = row.place.removeprefix("row 0, ") if len(found.batch.ids) == 1 else row.place
    where = f"{place}: A {number(row.value_a)}, B {number(row.value_b)}" if place else ""
    gap = "&ndash;"
    return header, [
        cell(f'<span class="{row.verdict}">{row.verdict}{fault}</span>'),
        cell(gap if row.verdict == Verdict.SHAPE else number(row.excess)),
        cell(gap if row.distance is None else number(row.distance.rms)),
        cell(gap if row.distance is None else number(row.distance.worst)),
        *(cell(gap if x is None else number(x.rms)) for x in distances),
        cell(describe_shapes(row) if row.verdict == Verdict.SHAPE else where),
    ]
