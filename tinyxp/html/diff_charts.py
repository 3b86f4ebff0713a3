"""The pictures of a comparison: the error by layer and by position, and where attention weights part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxp.doctor.distance import Distance, absolute_difference
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.traces import compared_mask
from tinyxp.doctor.verdicts import Comparison, Row
from tinyxp.html.page import Section, cell, escaped, number, rounded, scrolling, table

BY_LAYER = ("attn.out", "attn_residual", "mlp.out", "residual")
"""The points of a block that have a chart."""
HEADS = 4
CELLS = 48
"""How many heads have maps, and how many rows and columns a map has at most."""


def link(point: str) -> str:
    """A point's name, which leads to its row in the table of all points."""
    return f'<a href="#point-{escaped(point)}"><code>{escaped(point)}</code></a>'


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
    if not found.reference:
        return row.distance
    return row.error_a if found.judged == "A" else row.error_b


def layers(found: Comparison) -> Section | None:
    """A small chart for each of some points of a block."""
    blocks = 1 + max((b for b in (block_of(row.point) for row in found.rows) if b is not None), default=-1)
    label = f"error of {found.judged}" if found.reference else "distance of B from A"
    labels = (f"{label}, root mean square", *["what rounding costs"] * bool(found.reference))
    mark = None if found.first is None else block_of(found.first.point)
    charts = []
    for name in BY_LAYER:
        rows = [found.row(f"blocks.{i}.{name}") for i in range(blocks)]
        errors = [None if row is None else _error(found, row) for row in rows]
        costs = [None if row is None else row.noise for row in rows]
        curves = [Curve(label, [x and x.rms for x in errors])]
        if found.reference:
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


def positions(found: Comparison) -> Section | None:
    """The distance of the sides by position, where they part first and at the end."""
    wanted = [row for row in found.rows if row is found.first or row.point == "logits"]
    rows = [row for row in wanted if any(row.positions)]
    if not rows:
        return None
    real = np.atleast_1d(found.batch.real.any(axis=0))
    values = [[v if r else None for v, r in zip(row.positions, real, strict=True)] for row in rows]
    curves = [
        Curve(row.point, v, style) for row, v, style in zip(rows, values, ("error", "cost"), strict=False)
    ]
    title, names = "Distance of B from A by position", [f"<code>{row.point}</code>" for row in rows]
    hint = " A wrong mask or rotation shows here: position 0 is not turned and sees itself alone."
    numbers = [
        (str(i), [cell("padding" if v is None else number(v)) for v in at])
        for i, at in enumerate(zip(*values, strict=True))
    ]
    return Section(
        "positions",
        "Distance by position",
        f"The root mean square of B - A at each position, at {' and at '.join(names)}."
        f"{'' if found.agrees else hint}",
        f"{_legend(*names)}{scrolling(_chart(curves, title, 'position', (720, 260)), title)}"
        f"<details><summary>The numbers</summary>{table(title, ('position', *names), numbers)}</details>",
    )


def attention(found: Comparison, spelled: Callable[[int], str], data: dict[str, Any]) -> Section | None:
    """Maps of the heads that differ most, in the first layer whose weights part."""
    layer = next(
        (r for r in found.rows if kind(r.point) == "attn.weights" and r.differs and r.distance), None
    )
    if layer is None or layer.distance is None:
        return None
    a, b = (trace.points[layer.point].astype(np.float64) for trace in (found.trace_a, found.trace_b))
    difference = absolute_difference(b, a, compared_mask(layer.point, a.shape, found.batch))
    row, _, query, key = layer.distance.at
    by_head = difference[row].max(axis=(-2, -1))
    differing = int(np.count_nonzero(by_head))
    heads = np.argsort(-by_head, kind="stable")[: min(HEADS, differing)].tolist()
    t, s = a.shape[-2:]
    rows, columns = _window(query, t), _window(key, s)
    cut = np.s_[row, heads, rows, columns]
    with np.errstate(invalid="ignore"):
        signed = b[cut] - a[cut]
    ids = [spelled(i) for i in found.batch.ids[row].tolist()]
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
        f"{link(layer.point)} is the first layer whose weights part. A row is a position that looks, a "
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
