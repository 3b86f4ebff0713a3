"""The section of a comparison's page with maps of the attention weights that differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.distance import absolute_difference
from tinyxp.doctor.points import kind
from tinyxp.doctor.traces import compared_mask
from tinyxp.doctor.verdicts import Comparison, Row
from tinyxp.html.diff_points import link
from tinyxp.html.elements import Section
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.numbers import number, round_to

MAX_HEADS = 4
MAX_CELLS = 48
"""How many heads have maps, and how many rows and columns a map has, at most."""
SIZE = 216.0
"""The longer side of a map, in units of its view box; labels surround it."""


class Window(NamedTuple):
    """The weights that are shown: of one row of the batch, some heads, queries and keys."""

    row: int
    heads: list[int]
    queries: slice
    keys: slice


def attention_section(comparison: Comparison, describe_id: Callable[[int], str]) -> Section | None:
    """Return maps of the heads that differ most in the first layer that differs; None if no layer does."""
    layer = next((row for row in comparison.rows if _has_maps(row)), None)
    if layer is None or layer.distance is None:
        return None
    traces = (comparison.trace_a, comparison.trace_b)
    a, b = (trace.points[layer.point].astype(np.float64) for trace in traces)
    row, _, query, key = layer.distance.at
    mask = compared_mask(layer.point, a.shape, comparison.batch)
    difference = absolute_difference(b, a, mask)[row].max(axis=(-2, -1))
    differing = int(np.count_nonzero(difference))
    heads = np.argsort(-difference, kind="stable")[: min(MAX_HEADS, differing)].tolist()
    window = Window(row, heads, _around(query, a.shape[-2]), _around(key, a.shape[-1]))
    with np.errstate(invalid="ignore"):
        maps = (a[window], b[window], b[window] - a[window])
    largest = float(np.max(np.abs(maps[2]), where=np.isfinite(maps[2]), initial=0.0))
    ids = [describe_id(i) for i in comparison.batch.ids[row].tolist()]
    return Section(
        "attention",
        "Attention weights",
        _explanation(layer.point, largest, _describe(window, a.shape, differing)),
        join(_maps(k, head, window) for k, head in enumerate(heads)),
        {
            "queries": ids[window.queries],
            "keys": ids[window.keys],
            "first": [window.queries.start, window.keys.start],
            "maps": [_jsonable(side) for side in maps],
            "largest": [1.0, 1.0, largest or 1.0],
        },
    )


def _has_maps(row: Row) -> bool:
    return kind(row.point) == "attn.weights" and row.differs and row.distance is not None


def _around(index: int, size: int) -> slice:
    """Return up to MAX_CELLS indices around one."""
    start = min(max(0, index - MAX_CELLS // 2), max(0, size - MAX_CELLS))
    return slice(start, min(size, start + MAX_CELLS))


def _jsonable(heads: np.ndarray) -> list[list[float | str]]:
    """Return the numbers of each head, row by row; those that JSON lacks, NaN and infinities, as strings."""
    return [[round_to(x, 3) if math.isfinite(x) else str(x) for x in head.ravel().tolist()] for head in heads]


def _explanation(point: str, largest: float, shown: list[str]) -> Html:
    if largest:
        differences = fill(
            "Differences go up to {largest}: blue where B is larger, brown where it is smaller.",
            largest=number(largest),
        )
    else:
        differences = fill("They agree on all finite numbers.")
    return fill(
        "{point} is the first layer whose weights differ. Each row is a query position, each column a key "
        "position. A stronger colour is a larger weight, up to 1. {differences} A cross is a number that is "
        "not finite; an empty cell is 0 on both sides. Point at a cell for its numbers, or focus a map with "
        "the Tab key and move between cells with the arrow keys.{shown}",
        point=link(point),
        differences=differences,
        shown=escape(f" Shown: {'; '.join(shown)}." if shown else ""),
    )


def _describe(window: Window, shape: tuple[int, ...], differing: int) -> list[str]:
    """Say what part of the weights (b, h, t, s) a window shows; nothing if it shows all."""
    b, h, t, s = shape
    row, heads, queries, keys = window
    others = "those with the largest differences" if differing > MAX_HEADS else "the others do not differ"
    facts = [f"{len(heads)} of {h} heads, {others}"] * (len(heads) < h)
    facts += [f"row {row} of rows 0 to {b - 1}"] * (b > 1)
    facts += [f"positions {queries.start} to {queries.stop - 1} of {t}"] * (t > MAX_CELLS)
    return facts + [f"keys {keys.start} to {keys.stop - 1} of {s}"] * (s > MAX_CELLS)


def _maps(k: int, head: int, window: Window) -> Html:
    """Return the maps of A, B and their difference for a head; the script draws their cells."""
    height, width = (x.stop - x.start for x in (window.queries, window.keys))
    unit = SIZE / max(height, width)
    axes = _axes(window, unit)
    maps = (
        fill(
            '<figure><figcaption>{title}</figcaption><svg class="heat" viewBox="0 0 260 {height:.1f}" '
            'tabindex="0" role="application" aria-roledescription="heat map" data-head="{k}" '
            'data-side="{side}" aria-label="Head {head}, {title}: arrow keys move between cells">{axes}<g '
            'transform="translate(40 4) scale({unit:.4f})"></g></svg></figure>',
            title=escape(title),
            height=unit * height + 40.0,
            k=k,
            side=side,
            head=head,
            axes=axes,
            unit=unit,
        )
        for side, title in enumerate(("A", "B", "B - A"))
    )
    return fill(
        '<h3>Head {head}</h3><div class="maps">{maps}</div><p><output id="head-{k}"></output></p>',
        head=head,
        maps=join(maps),
        k=k,
    )


def _axes(window: Window, unit: float) -> Html:
    """Return the frame of a map and the labels of its axes."""
    (rows, columns) = window.queries, window.keys
    height, width = unit * (rows.stop - rows.start), unit * (columns.stop - columns.start)
    below = (
        fill(
            '<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{i}</text>',
            x=40.0 + unit * (i - columns.start + 0.5),
            y=18.0 + height,
            i=i,
        )
        for i in _ticks(columns)
    )
    beside = (
        fill(
            '<text x="35" y="{y:.1f}" text-anchor="end">{i}</text>',
            y=9.0 + unit * (i - rows.start + 0.5),
            i=i,
        )
        for i in _ticks(rows)
    )
    return fill(
        '<path class="grid" d="M40,4h{width:.1f}v{height:.1f}h-{width:.1f}z"/>{below}{beside}'
        '<text x="{x:.1f}" y="{bottom:.1f}" text-anchor="middle">key position</text>'
        '<text transform="translate(11 {y:.1f}) rotate(-90)" text-anchor="middle">query position</text>',
        width=width,
        height=height,
        below=join(below),
        beside=join(beside),
        x=40.0 + width / 2.0,
        bottom=32.0 + height,
        y=4.0 + height / 2.0,
    )


def _ticks(shown: slice) -> range:
    return range(shown.start, shown.stop, math.ceil((shown.stop - shown.start) / 8))
