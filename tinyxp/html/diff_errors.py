"""The sections of a comparison's page that chart the error by layer and by position."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import block_of
from tinyxp.doctor.verdicts import Comparison, Row
from tinyxp.html.charts import Curve, legend, line_chart
from tinyxp.html.elements import EMPTY, Section, cell, code, details, scroll_box, table
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.numbers import number

CHARTED = ("attn.out", "attn_residual", "mlp.out", "residual")
"""The points of a block that have a chart by layer."""


def layer_section(comparison: Comparison) -> Section | None:
    """Return a small chart of the error by block for each charted point; None if no block was compared."""
    charts = [chart for name in CHARTED if (chart := _layer_chart(comparison, name)) is not None]
    if not charts:
        return None
    block = _first_block(comparison)
    mark = "" if block is None else f" The vertical line is block {block}, which has the first difference."
    entries = zip(("error", "cost"), map(escape, _labels(comparison, ", root mean square")), strict=False)
    return Section(
        "layers",
        "Error by layer",
        fill(
            "Logarithmic scale. 0 and values that are not finite are drawn outside it. A gap is a point "
            "that was not compared.{mark}",
            mark=escape(mark),
        ),
        fill('{legend}<div class="charts">{charts}</div>', legend=legend([*entries]), charts=join(charts)),
    )


def _layer_chart(comparison: Comparison, name: str) -> Html | None:
    """Return the chart of one kind of point; None if no block has it."""
    blocks = [b for b in (block_of(row.point) for row in comparison.rows) if b is not None]
    rows = [comparison.row(f"blocks.{i}.{name}") for i in range(1 + max(blocks, default=-1))]
    errors = [None if row is None else _error(comparison, row) for row in rows]
    if not any(errors):
        return None
    label, *rounding = _labels(comparison)
    curves = [Curve(label, [_rms(error) for error in errors])]
    curves += [
        Curve(label, [None if row is None else _rms(row.noise) for row in rows], "cost") for label in rounding
    ]
    title = f"{name}: {' and '.join(_labels(comparison, ', root mean square'))}, by block"
    chart = line_chart(curves, title=title, axis="block", size=(380, 240), mark=_first_block(comparison))
    return fill(
        "<figure><figcaption>{name}</figcaption>{chart}</figure>",
        name=code(name),
        chart=chart,
    )


def _labels(comparison: Comparison, measure: str = "") -> list[str]:
    """Return the names of the curves: the error, and the rounding error if there is a reference."""
    if not comparison.reference:
        return [f"distance of B from A{measure}"]
    return [f"error of {comparison.judged}{measure}", "rounding error"]


def _first_block(comparison: Comparison) -> int | None:
    return None if comparison.first is None else block_of(comparison.first.point)


def _error(comparison: Comparison, row: Row) -> Distance | None:
    """Return the error of the side under test; without a reference, the distance of the sides."""
    if not comparison.reference:
        return row.distance
    return row.error_a if comparison.judged == "A" else row.error_b


def _rms(distance: Distance | None) -> float | None:
    return None if distance is None else distance.rms


def position_section(comparison: Comparison) -> Section | None:
    """Return the distance of the sides by position, at the first difference and at the logits."""
    rows = [
        row
        for row in comparison.rows
        if (row is comparison.first or row.point == "logits") and any(row.positions)
    ]
    if not rows:
        return None
    real = np.atleast_1d(comparison.batch.real.any(axis=0)).tolist()
    values = [[v if r else None for v, r in zip(row.positions, real, strict=True)] for row in rows]
    kinds = ("error", "cost")[: len(rows)]
    curves = [Curve(row.point, v, kind) for row, v, kind in zip(rows, values, kinds, strict=True)]
    names = [code(row.point) for row in rows]
    title = "Distance of B from A by position"
    chart = line_chart(curves, title=title, axis="position", size=(720, 260))
    numbers = [
        (escape(i), [cell(escape("padding") if v is None else number(v)) for v in at])
        for i, at in enumerate(zip(*values, strict=True))
    ]
    hint = fill(
        " A wrong mask or rotation shows here: position 0 is not rotated and attends only to itself.",
    )
    return Section(
        "positions",
        "Distance by position",
        fill(
            "The root mean square of B - A at each position, at {names}.{hint}",
            names=join(names, " and at "),
            hint=EMPTY if comparison.agrees else hint,
        ),
        join(
            [
                legend([*zip(kinds, names, strict=True)]),
                scroll_box(chart, title),
                details("Table of the values", table(title, [escape("position"), *names], numbers)),
            ]
        ),
    )
