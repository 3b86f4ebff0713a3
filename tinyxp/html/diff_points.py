"""The section of a comparison's page that lists every trace point, and links to its rows."""

from __future__ import annotations

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import block_of
from tinyxp.doctor.verdicts import Comparison, Row, Verdict
from tinyxp.doctor.wording import describe_shapes
from tinyxp.html.elements import EMPTY, Section, cell, controls, select, table
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.numbers import number


def link(point: str) -> Html:
    """Return the name of a point as a link to its row."""
    return fill('<a href="#point-{point}"><code>{point}</code></a>', point=escape(point))


def point_section(comparison: Comparison) -> Section:
    """Return the table of all points, and a menu of the points to show."""
    errors = ["error of A", "error of B", "rounding error"] if comparison.reference else []
    columns = ("point", "verdict", "times", "B - A, rms", "B - A, worst", *errors, "worst element")
    rows = [_row(comparison, row) for row in comparison.rows]
    points = table("Trace points", [*map(escape, columns)], rows, kind="points", name="points-table")
    return Section(
        "points",
        "Trace points",
        _explanation(comparison),
        join(
            [
                controls(
                    select("show", "Show", _choices(comparison)),
                    fill('<output id="shown" for="show"></output>'),
                ),
                fill('<div class="tall">{points}</div>', points=points),
            ]
        ),
    )


def _explanation(comparison: Comparison) -> Html:
    if not comparison.reference:
        return fill(
            "In the order of the computation. <em>Times</em> is the distance divided by the tolerance: a "
            "point above 1 differs."
        )
    return fill(
        "In the order of the computation. The errors of A and B are their distances from the reference; the "
        "rounding error is that of a correct implementation in {judged}'s dtype. All three are root mean "
        "squares. <em>Times</em> is an error divided by the limit of what rounding explains: above 1 the "
        "point is wrong.",
        judged=escape(comparison.judged),
    )


def _choices(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what the menu can show: values that the script knows, and their texts."""
    blocks = sorted({b for b in (block_of(row.point) for row in comparison.rows) if b is not None})
    differing = sum(row.differs for row in comparison.rows)
    choices = [("all", f"all {len(comparison.rows)} points"), ("differing", f"the {differing} that differ")]
    choices += [("outside", "those outside the blocks")] if blocks else []
    return choices + [(str(block), f"block {block}") for block in blocks]


def _row(comparison: Comparison, row: Row) -> tuple[Html, list[Html]]:
    """Return the header and the cells of a point's row; the header carries what the menu chooses by."""
    block = block_of(row.point)
    header = fill(
        '<code id="point-{point}" data-block="{block}"{differs}>{point}</code>{first}',
        point=escape(row.point),
        block=escape("outside" if block is None else block),
        differs=fill(" data-differs") if row.differs else EMPTY,
        first=fill(' <strong class="first">first difference</strong>') if row is comparison.first else EMPTY,
    )
    errors = [row.error_a, row.error_b, row.noise] if comparison.reference else []
    cells = [
        _verdict(row),
        _gap() if row.verdict == Verdict.SHAPE else number(row.excess),
        _rms(row.distance),
        _gap() if row.distance is None else number(row.distance.worst),
        *map(_rms, errors),
        escape(describe_shapes(row)) if row.verdict == Verdict.SHAPE else _worst(comparison, row),
    ]
    return header, [cell(x) for x in cells]


def _verdict(row: Row) -> Html:
    fault = f" in {row.at_fault}" if row.verdict == Verdict.FAULT and row.at_fault else ""
    return fill(
        '<span class="{verdict}">{verdict}{fault}</span>', verdict=escape(row.verdict), fault=escape(fault)
    )


def _worst(comparison: Comparison, row: Row) -> Html:
    """Return the place of the worst element, without its row if there is only one, and both values."""
    if not row.place:
        return EMPTY
    place = row.place.removeprefix("row 0, ") if len(comparison.batch.ids) == 1 else row.place
    return fill("{place}: A {a}, B {b}", place=escape(place), a=number(row.value_a), b=number(row.value_b))


def _rms(distance: Distance | None) -> Html:
    return _gap() if distance is None else number(distance.rms)


def _gap() -> Html:
    return fill("&ndash;")
