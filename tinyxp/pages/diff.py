"""The page of a comparison: where two sides part, whether it matters, and every number behind that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxp.comparison.distance import RMS_FACTOR, WORST_FACTOR, Distance, apart
from tinyxp.comparison.points import block_of, counted, kind
from tinyxp.comparison.verdicts import CARRIED, EXACT, FAULT, NOISE, SHAPE, Comparison, Row
from tinyxp.pages.html import Section, cell, document, escaped, number, rounded, scrolling, table

OPERATIONS = {
    "embed": "the embedding",
    "attn_norm": "the norm before attention",
    "attn.q": "the projection to queries",
    "attn.k": "the projection to keys",
    "attn.v": "the projection to values",
    "attn.q_rotated": "the rotation of the queries",
    "attn.k_rotated": "the rotation of the keys",
    "attn.scores": "the scaled products of queries and keys",
    "attn.weights": "the mask and the softmax of the scores",
    "attn.heads": "the sums of values by weight",
    "attn.out": "the output projection of attention",
    "attn_residual": "the sum after attention",
    "mlp_norm": "the norm before the MLP",
    "mlp.gate": "the gate projection of the MLP",
    "mlp.up": "the up projection of the MLP",
    "mlp.hidden": "the activation of the MLP",
    "mlp.out": "the down projection of the MLP",
    "residual": "the sum after the MLP",
    "final_norm": "the last norm",
    "logits": "the head",
}
MEANINGS = {
    EXACT: "A and B are equal to the last bit",
    NOISE: "apart, by no more than rounding explains",
    FAULT: "wrong: what this operation does to its inputs is more than rounding",
    CARRIED: "wrong only because its inputs are",
    SHAPE: "the arrays have other shapes",
}
BY_LAYER = ("attn.out", "attn_residual", "mlp.out", "residual")
"""The points of a block that have a chart."""
HEADS = 4
CELLS = 48
"""How many heads have maps, and how many rows and columns a map has at most."""


def diff_page(found: Comparison) -> str:
    """A comparison as one HTML page that needs nothing beside it: the answer in a sentence, what was
    compared, the first next token that differs, the error by layer and by position, the attention weights
    where they part, and a table of all points."""
    data: dict[str, Any] = {}
    made = (_token(found), _layers(found), _positions(found), _attention(found, data), _points(found))
    sections = [_compared(found), *(section for section in made if section is not None)]
    names = [_printable(side.name) for side in (found.a, found.b)]
    names = [name if name == label else f"{label}: {name}" for label, name in zip("AB", names, strict=True)]
    title = f"{'Agreement' if found.agrees else 'Difference'} of {names[0]} and {names[1]}"
    page = document(title, f'<p class="answer">{_answer(found)}</p>', sections, data=data, script=SCRIPT)
    return page.replace("</style>", f"{STYLE}</style>", 1)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _text(text: str) -> str:
    return escaped(_printable(text))


def _link(point: str) -> str:
    return f'<a href="#point-{escaped(point)}"><code>{escaped(point)}</code></a>'


def _place(point: str) -> str:
    """The operation behind a point, and its block."""
    block = block_of(point)
    return OPERATIONS[kind(point)] + ("" if block is None else f" of block {block}")


def _times(found: Comparison, row: Row) -> str:
    what = "what rounding may cost there" if found.truth else "the tolerance"
    return f"{'infinitely many' if math.isinf(row.excess) else number(row.excess)} times {what}"


def _shapes(found: Comparison, row: Row) -> str:
    assert row.shapes is not None
    if row.distance is None:
        return f"A has shape {row.shapes[0]}, B has {row.shapes[1]}"
    return f"the weights give shape {row.shapes[0]}, both sides have {row.shapes[1]}"


def _answer(found: Comparison) -> str:
    """Where they part first, in which operation, by how much, and whether the end of the model parts."""
    first, last, count = found.first, found.rows[-1], len(found.rows)
    if first is None:
        exact = sum(row.verdict == EXACT for row in found.rows)
        far = max(found.rows, key=lambda row: row.excess)
        told = f"<strong>They agree</strong> at {'all ' * (count > 1)}{_count(count)}, to the last bit at "
        told += f"{'each' if exact == count else exact}."
        return told + f" The largest error, at {_link(far.point)}, is {_times(found, far)}." * (
            far.excess > 0.0
        )
    if first.shapes is not None:
        told = _shapes(found, first)
    else:
        what = f"the error of {first.at_fault} is" if found.truth else "the distance of B from A is"
        told = f"{what.replace(' and B is', ' and of B is')} {_times(found, first)}"
        if found.truth and first.excess <= 1.0:
            told += ", but what this operation adds to the error of its inputs is more than that"
        if first.distance is not None and math.isinf(first.distance.worst):
            told += f"; at {first.place} {_values(first)}"
    told = f"<strong>They part first at {_link(first.point)}</strong>, {_place(first.point)}: {told}."
    logits = last.point == "logits"
    end = "the logits" if logits else f"the last common point, {_link(last.point)}"
    if last is first:
        return f"{told} {'It matters: these are' if logits else 'It is the end:'} {end}."
    if not last.parts:
        return f"{told} It does not reach the end: {end}{' do' if logits else ', does'} not part."
    amount = "in shape" if last.verdict == SHAPE else f"by {_times(found, last)}"
    return f"{told} It matters: {end}{' part' if logits else ', parts'} too, {amount}."


def _count(count: int) -> str:
    return f"{count} trace point{'s' * (count != 1)}"


def _values(row: Row) -> str:
    return f"A has {number(row.value_a)}, B has {number(row.value_b)}"


def _compared(found: Comparison) -> Section:
    """The sides, what went into them, and what they are judged by."""
    ids, mask = found.batch.ids, found.batch.mask
    roles = ("in doubt", "trusted") if found.judged == "A" else ("trusted", "in doubt")
    sides = [
        (
            name,
            [
                cell(f'<span class="long">{_text(side.name)}</span>'),
                cell(side.dtype or "unknown"),
                cell(role if found.truth else "held against the other"),
            ],
        )
        for name, side, role in zip("AB", (found.a, found.b), roles, strict=True)
    ]
    shown = ", ".join(map(str, ids.ravel()[:CELLS].tolist())) + (", ..." if ids.size > CELLS else "")
    told = f"{ids.shape[0]} &times; {ids.shape[1]} (rows, positions): {shown}"
    if mask is not None:
        told += f"; the mask leaves {int(mask.sum())} of {mask.size} as real tokens"
    if found.generated:
        told += f"; the last {found.generated} of each row are A's greedy continuation"
    facts = {
        "ids": told,
        "truth": _text(found.truth or "none: neither side has weights here"),
        "noise": _text(found.noise),
    }
    if found.truth:
        facts["limit"] = (
            f"rounding may cost {RMS_FACTOR:g} times the root mean square of the noise, {WORST_FACTOR:g} "
            "times its worst, and one rounding of the result; more is a fault"
        )
    facts |= {"notes": "<br>".join(map(_text, found.notes))} if found.notes else {}
    listed = "".join(f"<dt>{name}</dt><dd>{told}</dd>" for name, told in facts.items())
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


def _token(found: Comparison) -> Section | None:
    """The first next token that differs."""
    token, logits = found.token, found.row("logits")
    if not found.predictions or logits is None:
        return None
    if token is None:
        told = f"The likeliest next token is the same at all {found.predictions} positions that count."
        return Section("token", "The next token", told, "")
    before = int(found.batch.real[: token.row].sum() + found.batch.real[token.row, : token.position].sum())
    moved = (
        f"; rounding may move the difference of two logits by {number(logits.moved)}" if logits.moved else ""
    )
    verdict = "a tie, which rounding may turn" if token.is_tie else "no tie: rounding does not explain it"
    if not math.isfinite(token.margin_a + token.margin_b):
        moved += "; a logit there is not finite"
    rows = [
        ("A", [cell(str(token.a)), cell(number(token.margin_a))]),
        ("B", [cell(str(token.b)), cell(number(token.margin_b))]),
    ]
    columns = ("side", "id", "margin")
    return Section(
        "token",
        "The next token",
        f"After row {token.row}, position {token.position} (id {found.batch.ids[token.row, token.position]}) "
        f"they choose different tokens for the first time, {before} of {found.predictions} positions in. It "
        f"is <strong>{verdict}</strong>{moved}. A margin is a side's logit of its own choice less that "
        "of the other's.",
        table("The likeliest next tokens", columns, rows),
    )


class Curve(NamedTuple):
    """A line of a chart. None is a gap; ``style`` is "error" or "cost"."""

    label: str
    values: Sequence[float | None]
    style: str = "error"


def _chart(
    curves: Sequence[Curve], title: str, axis: str, size: tuple[int, int], mark: int | None = None
) -> str:
    """Lines over 0, 1, ... on a logarithmic scale, as SVG; 0 and what is not finite have lines of their own
    below and above it. ``mark`` is a step with an upright line."""
    values = [x for curve in curves for x in curve.values if x is not None]
    logs = [math.log10(x) for x in values if 0.0 < x < math.inf]
    low, high = math.floor(min(logs, default=-1.0)), math.ceil(max(logs, default=0.0))
    high = max(high, low + 1)
    steps = max((len(curve.values) for curve in curves), default=1)
    (width, height), left = size, 58.0
    none, broken = 0.0 in values, not all(map(math.isfinite, values))
    top, bottom = 12.0 + 22.0 * broken, height - 44.0 - 22.0 * none
    step = (width - left - 14.0) / max(steps - 1, 1)

    def x(i: int) -> float:
        return left + step * i if steps > 1 else (left + width) / 2

    def y(value: float) -> float:
        if value == 0.0:
            return height - 44.0
        if not math.isfinite(value):
            return 12.0
        return bottom - (bottom - top) * (math.log10(value) - low) / (high - low)

    every = math.ceil((high - low) / 6)
    marks = [10.0**k for k in range(low, high + 1, every)] + [0.0] * none + [math.inf] * broken
    parts = [
        f'<path class="grid" d="M{left},{y(v):.1f}H{width}"/>'
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{number(v)}</text>'
        for v in marks
    ]
    every = math.ceil(steps / (width / 60))
    parts += [
        f'<text x="{x(i):.1f}" y="{height - 24}" text-anchor="middle">{i}</text>'
        for i in range(0, steps, every)
    ]
    parts.append(f'<text x="{(left + width) / 2}" y="{height - 6}" text-anchor="middle">{axis}</text>')
    if mark is not None:
        parts.append(f'<path class="mark" d="M{x(mark):.1f},0V{height - 38}"/>')
    for curve in curves:
        drawn, pen = "", "M"
        for i, value in enumerate(curve.values):
            drawn += "" if value is None else f"{pen}{x(i):.1f},{y(value):.1f}"
            pen = "M" if value is None else "L"
        parts.append(f'<path class="curve {curve.style}" d="{drawn}"/>')
        parts += [
            f'<circle class="point {curve.style}" cx="{x(i):.1f}" cy="{y(value):.1f}" r="3.5">'
            f"<title>{curve.label}, {axis} {i}: {number(value)}</title></circle>"
            for i, value in enumerate(curve.values)
            if value is not None
        ]
    attributes = f'viewBox="0 0 {width} {height}" role="img" aria-label="{title}"'
    return f'<svg class="curves" {attributes}>{"".join(parts)}</svg>'


def _legend(*labels: str) -> str:
    """What the lines of the charts are, in the order of the styles."""
    entries = (
        '<span class="entry"><svg class="pen" viewBox="0 0 40 12" aria-hidden="true">'
        f'<path class="curve {style}" d="M0,6H40"/><circle class="point {style}" cx="20" cy="6" r="3.5"/>'
        f"</svg> {label}</span>"
        for style, label in zip(("error", "cost"), labels, strict=False)
    )
    return f'<p class="note">{" ".join(entries)}</p>'


def _error(found: Comparison, row: Row) -> Distance | None:
    """The error of the side in doubt; without a truth, the distance of the sides."""
    if not found.truth:
        return row.distance
    return row.error_a if found.judged == "A" else row.error_b


def _layers(found: Comparison) -> Section | None:
    """A small chart for each of some points of a block."""
    blocks = 1 + max((b for b in (block_of(row.point) for row in found.rows) if b is not None), default=-1)
    label = f"error of {found.judged}" if found.truth else "distance of B from A"
    labels = (f"{label}, root mean square", *["what rounding costs"] * bool(found.truth))
    mark = None if found.first is None else block_of(found.first.point)
    charts = []
    for name in BY_LAYER:
        rows = [found.row(f"blocks.{i}.{name}") for i in range(blocks)]
        errors = [None if row is None else _error(found, row) for row in rows]
        costs = [None if row is None else row.noise for row in rows]
        curves = [Curve(label, [x and x.rms for x in errors])]
        if found.truth:
            curves.append(Curve(labels[1], [x and x.rms for x in costs], "cost"))
        if any(errors):
            drawn = _chart(curves, f"{name}: {' and '.join(labels)}, by block", "block", (380, 240), mark)
            charts.append(f"<figure><figcaption><code>{name}</code></figcaption>{drawn}</figure>")
    if not charts:
        return None
    told = "" if mark is None else f" The upright line is block {mark}, where they part first."
    return Section(
        "layers",
        "Error by layer",
        "On a logarithmic scale; 0 and what is not finite stand outside of it, and a gap is a point that "
        f"was not compared.{told}",
        f'{_legend(*labels)}<div class="charts">{"".join(charts)}</div>',
    )


def _positions(found: Comparison) -> Section | None:
    """The distance of the sides by position, where they part first and at the end."""
    rows = [row for row in (found.first, found.row("logits")) if row is not None and any(row.positions)]
    rows = rows[:1] if len(rows) == 2 and rows[0] is rows[1] else rows
    if not rows:
        return None
    real = np.atleast_1d(found.batch.real.any(axis=0))
    values = [[v if r else None for v, r in zip(row.positions, real, strict=True)] for row in rows]
    curves = [
        Curve(row.point, v, style) for row, v, style in zip(rows, values, ("error", "cost"), strict=False)
    ]
    title, parting = "Distance of B from A by position", not found.agrees
    legend = _legend(*(f"<code>{row.point}</code>" for row in rows))
    numbers = [
        (str(i), [cell("padding" if v is None else number(v)) for v in at])
        for i, at in enumerate(zip(*values, strict=True))
    ]
    return Section(
        "positions",
        "Distance by position",
        "The root mean square of B - A at each position, "
        + (
            "where they part first and at the logits"
            if len(rows) == 2
            else f"at <code>{rows[0].point}</code>"
        )
        + (
            ". A wrong mask or rotation shows here: position 0 is not turned and sees itself alone." * parting
            or "."
        ),
        f"{legend}{scrolling(_chart(curves, title, 'position', (720, 260)), title)}"
        f"<details><summary>The numbers</summary>"
        f"{table(title, ('position', *(f'<code>{row.point}</code>' for row in rows)), numbers)}</details>",
    )


def _attention(found: Comparison, data: dict[str, Any]) -> Section | None:
    """Maps of the heads that differ most, in the first layer whose weights part."""
    layer = next((r for r in found.rows if kind(r.point) == "attn.weights" and r.parts and r.distance), None)
    if layer is None or layer.distance is None or found.arrays is None:
        return None
    a, b = (x.astype(np.float64) for x in found.arrays(layer.point))
    difference = apart(b, a, counted(layer.point, a.shape, found.batch))
    row, _, query, key = layer.distance.at
    by_head = difference[row].max(axis=(-2, -1))
    differing = int(np.count_nonzero(by_head))
    heads = np.argsort(-by_head, kind="stable")[: min(HEADS, differing)].tolist()
    t, s = a.shape[-2:]
    rows, columns = _window(query, t), _window(key, s)
    cut = np.s_[row, heads, rows, columns]
    with np.errstate(invalid="ignore"):
        signed = b[cut] - a[cut]
    ids = found.batch.ids[row].tolist()
    data |= {"queries": ids[rows], "keys": ids[columns], "first": [rows.start, columns.start]}
    data["maps"] = [_plain(side) for side in (a[cut], b[cut], signed)]
    largest = float(np.max(np.abs(signed), where=np.isfinite(signed), initial=0.0))
    data["largest"] = [1.0, 1.0, largest or 1.0]
    differences = (
        f"Differences go up to {number(largest)}, blue where B is larger and brown where it is smaller."
        if largest
        else "Where both are finite they do not differ."
    )
    figures = "".join(_maps(k, head, (rows, columns)) for k, head in enumerate(heads))
    which = "those with the largest differences" if differing > HEADS else "the others do not differ"
    left = [f"{len(heads)} of {a.shape[1]} heads, {which}"] * (len(heads) < a.shape[1])
    left += [f"row {row} of rows 0 to {len(a) - 1}"] * (len(a) > 1)
    left += [f"positions {rows.start} to {rows.stop - 1} of {t}"] * (t > CELLS)
    left += [f"keys {columns.start} to {columns.stop - 1} of {s}"] * (s > CELLS)
    return Section(
        "attention",
        "Attention weights",
        f"{_link(layer.point)} is the first layer whose weights part. A row is a position that looks, a "
        "column one that is looked at, a cell the weight: the stronger its colour, the larger, up to 1. "
        f"{differences} A cross is a number that is not finite, an empty cell 0 on both sides. Point at a "
        "cell for its numbers, or go to a map with the Tab key and from cell to cell with the arrow keys."
        + (f" Shown: {'; '.join(left)}." if left else ""),
        figures,
    )


def _window(at: int, size: int) -> slice:
    """Up to CELLS indices around one."""
    start = min(max(0, at - CELLS // 2), max(0, size - CELLS))
    return slice(start, min(size, start + CELLS))


def _plain(heads: np.ndarray) -> list[list[float | str]]:
    """The numbers of each head, row by row; JSON has no word for those that are not finite."""
    return [[rounded(x, 3) if math.isfinite(x) else str(x) for x in head.ravel().tolist()] for head in heads]


def _maps(k: int, head: int, shown: tuple[slice, slice]) -> str:
    """A, B and their difference for a head, still without cells."""
    (rows, columns), size = shown, 216.0
    high, wide = rows.stop - rows.start, columns.stop - columns.start
    each = size / max(high, wide)
    ticks = "".join(
        f'<text x="{40 + each * (i + 0.5):.1f}" y="{18 + each * high:.1f}" text-anchor="middle">'
        f"{columns.start + i}</text>"
        for i in _ticks(wide)
    ) + "".join(
        f'<text x="35" y="{9 + each * (i + 0.5):.1f}" text-anchor="end">{rows.start + i}</text>'
        for i in _ticks(high)
    )
    middle = (40 + each * wide / 2, 4 + each * high / 2)
    axes = (
        f'<text x="{middle[0]:.1f}" y="{32 + each * high:.1f}" text-anchor="middle">key position</text>'
        f'<text transform="translate(11 {middle[1]:.1f}) rotate(-90)" text-anchor="middle">query position'
        "</text>"
    )
    frame = f'<path class="grid" d="M40,4h{each * wide:.1f}v{each * high:.1f}h-{each * wide:.1f}z"/>'
    svgs = "".join(
        f'<figure><figcaption>{title}</figcaption><svg class="heat" viewBox="0 0 260 {each * high + 40:.1f}" '
        f'tabindex="0" role="application" aria-roledescription="heat map" data-head="{k}" data-side="{side}" '
        f'aria-label="Head {head}, {title}: arrow keys go from cell to cell">{frame}{ticks}{axes}'
        f'<g transform="translate(40 4) scale({each:.4f})"></g></svg></figure>'
        for side, title in enumerate(("A", "B", "B - A"))
    )
    return f'<h3>Head {head}</h3><div class="maps">{svgs}</div><p><output id="head-{k}"></output></p>'


def _ticks(count: int) -> range:
    return range(0, count, math.ceil(count / 8))


def _points(found: Comparison) -> Section:
    """Every point, and a choice of which to see."""
    blocks = sorted({b for b in (block_of(row.point) for row in found.rows) if b is not None})
    parting = sum(row.parts for row in found.rows)
    options = [("all", f"all {len(found.rows)} points"), ("parts", f"the {parting} that part")]
    options += [("outside", "those outside of the blocks")] if blocks else []
    options += [(str(block), f"block {block}") for block in blocks]
    choice = "".join(f'<option value="{value}">{text}</option>' for value, text in options)
    measured = ["error of A", "error of B", "rounding costs"] if found.truth else []
    columns = ("point", "verdict", "times", "B - A, rms", "B - A, worst", *measured, "worst element")
    body = [_row(found, row) for row in found.rows]
    if found.truth:
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
        f'<output id="shown" for="show">{_count(len(body))}</output></div>'
        f'<div class="tall">{table("Trace points", columns, body, kind="points", name="points-table")}</div>',
    )


def _row(found: Comparison, row: Row) -> tuple[str, list[str]]:
    """The header and the cells of a point's row; the header carries what the script chooses by."""
    block, name = block_of(row.point), escaped(row.point)
    header = (
        f'<code id="point-{name}" data-block="{"outside" if block is None else block}"'
        f"{' data-parts' if row.parts else ''}>{name}</code>"
        + (' <strong class="first">parts first</strong>' if row is found.first else "")
    )
    fault = f" in {row.at_fault}" if row.verdict == FAULT and row.at_fault else ""
    distances = [row.error_a, row.error_b, row.noise] if found.truth else []
    place = row.place.removeprefix("row 0, ") if len(found.batch.ids) == 1 else row.place
    where = f"{place}: A {number(row.value_a)}, B {number(row.value_b)}" if place else ""
    gap = "&ndash;"
    return header, [
        cell(f'<span class="{row.verdict}">{row.verdict}{fault}</span>'),
        cell(gap if row.verdict == SHAPE else number(row.excess)),
        cell(gap if row.distance is None else number(row.distance.rms)),
        cell(gap if row.distance is None else number(row.distance.worst)),
        *(cell(gap if x is None else number(x.rms)) for x in distances),
        cell(_shapes(found, row) if row.verdict == SHAPE else where),
    ]


STYLE = """
.answer { font-size: 1.15rem; max-width: 56rem; }
h1, .long, dd { overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; max-width: 60rem;
  font-size: .95rem; }
dt { font-weight: 600; }
dd { margin: 0; }
.words { margin-bottom: 1rem; }
.words th, .words td { text-align: left; white-space: normal; }
.tall .scroll { max-height: 85vh; overflow: auto; }
.points { font-size: .85rem; }
.points th, .points td { padding: .2rem .4rem; }
.points thead th { position: sticky; top: 0; z-index: 1; background: var(--card);
  box-shadow: inset 0 -2px var(--edge); }
.points td:nth-child(2), .points td:last-child, .points thead th:nth-child(2), .points thead th:last-child {
  text-align: left; }
.points code { scroll-margin: 5rem; }
.points tr:has(.first), .points tr:has(:target) { outline: 3px solid var(--accent); outline-offset: -3px; }
.points tr:has([data-parts]) { background: color-mix(in srgb, var(--cold) 14%, var(--card)); }
.points .first { background: var(--accent); color: var(--card); border-radius: .3rem; padding: 0 .4rem; }
.fault, .shape { font-weight: 700; }
.exact { color: var(--faint); }
figure { margin: 0; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; }
.maps { display: flex; gap: 1.5rem; overflow-x: auto; padding: 6px; }
.charts figure { width: 26rem; max-width: 100%; }
.curves { display: block; width: 100%; }
.scroll .curves { min-width: 40rem; max-width: 50rem; }
.curves text, .heat text { font: 13px system-ui, sans-serif; fill: var(--faint); }
.heat text { font-size: 11px; }
.curve.error { stroke: var(--accent); }
.curve.cost { stroke: var(--cold); stroke-dasharray: 6 4; }
.point { stroke: none; }
.point.error { fill: var(--accent); }
.point.cost { fill: var(--card); stroke: var(--cold); stroke-width: 1.5; }
.mark { stroke: var(--ink); stroke-dasharray: 2 3; }
.entry { white-space: nowrap; margin-right: 1rem; }
.pen { width: 2.5rem; height: .75rem; }
.maps figure { flex: 0 1 21rem; min-width: 17rem; text-align: center; }
.heat { width: 100%; display: block; }
.heat rect { fill: var(--heat); }
.heat rect.less { fill: var(--cold); }
.heat rect.cursor { fill: none; stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
.heat .broken { fill: transparent; }
.heat .cross { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.heat .cross, .heat .cursor { pointer-events: none; }
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const find = (id) => document.getElementById(id);
const points = [...document.querySelectorAll('#points-table tbody code')];

function choose() {
  const wanted = find('show').value;
  let count = 0;
  for (const point of points) {
    const { block, parts } = point.dataset;
    const seen = wanted === 'all' || (wanted === 'parts' ? parts !== undefined : block === wanted);
    point.closest('tr').hidden = !seen;
    count += seen;
  }
  find('shown').textContent = `${count} trace point${count === 1 ? '' : 's'}`;
}
find('show').addEventListener('input', choose);
choose();
for (const link of document.querySelectorAll('a[href^="#point-"]')) {
  link.addEventListener('click', () => {
    if (!find(link.hash.slice(1)).closest('tr').hidden) return;
    find('show').value = 'all';
    choose();
  });
}

const heats = [...document.querySelectorAll('.heat')];
const sides = ['A', 'B', 'B - A'];
for (const heat of heats) {
  const head = Number(heat.dataset.head), side = Number(heat.dataset.side), wide = data.keys.length;
  const values = data.maps.map((side) => side[head]), group = heat.querySelector('g');
  const place = (at) => {
    const i = Math.floor(at / wide), j = at % wide, [row, column] = data.first;
    return `position ${row + i} (id ${data.queries[i]}) looks at ${column + j} (id ${data.keys[j]})`;
  };
  const square = (kind, at, rest) =>
    `<rect class="${kind}" x="${at % wide}" y="${Math.floor(at / wide)}" width="1" height="1"${rest}</rect>`;
  group.innerHTML = values[side].map((value, at) => {
    if (values[0][at] === 0 && values[1][at] === 0) return '';
    const title = `><title>${place(at)}: ${sides[side]} ${value}</title>`;
    if (typeof value === 'string') {
      const cross = `M${at % wide},${Math.floor(at / wide)}l1,1m0,-1l-1,1`;
      return square('broken', at, title) + `<path class="cross" d="${cross}"/>`;
    }
    const shade = Math.abs(value) / data.largest[side];
    return square(value < 0 ? 'less' : 'more', at, ` fill-opacity="${shade}"${title}`);
  }).join('');
  let at = 0;
  const tell = () => {
    for (const other of heats.filter((other) => other.dataset.head === heat.dataset.head)) {
      other.querySelector('.cursor')?.remove();
      other.querySelector('g').insertAdjacentHTML('beforeend', square('cursor', at, '>'));
    }
    const told = sides.map((name, k) => `${name} ${values[k][at]}`).join(', ');
    find(`head-${head}`).textContent = `${place(at)}: ${told}`;
  };
  heat.addEventListener('focus', tell);
  heat.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }, step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = at + step, sideways = Math.abs(step) === 1;
    if (next < 0 || next >= values[0].length) return;
    if (sideways && Math.floor(next / wide) !== Math.floor(at / wide)) return;
    at = next;
    tell();
  });
}
"""
