"""Charts as SVG: lines on a logarithmic scale with their legend, and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tinyxp.html.elements import EMPTY
from tinyxp.html.markup import Html, escape, fill, join
from tinyxp.html.numbers import number

LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 12.0, 44.0
"""The margins of a line chart, for the labels of its axes."""
EXTRA = 22.0
"""The distance of the lines for 0 and for values that are not finite from the logarithmic scale."""
DECADES = 6
"""At most about so many decades have a grid line."""


class Curve(NamedTuple):
    """A line of a chart. None is a gap; ``kind`` is the class of its elements, which gives its colours."""

    label: str
    values: Sequence[float | None]
    kind: str = "error"


@dataclass(frozen=True)
class _Plane:
    """Where a chart draws a step and a value."""

    width: float
    height: float
    steps: int
    low: int  # the decades of the scale: 10**low to 10**high
    high: int
    has_zeros: bool
    has_infinities: bool

    @classmethod
    def fit(cls, curves: Sequence[Curve], size: tuple[int, int]) -> _Plane:
        """Return the plane that holds every value of the curves."""
        values = [x for curve in curves for x in curve.values if x is not None]
        logs = [math.log10(x) for x in values if 0.0 < x < math.inf]
        low, high = math.floor(min(logs, default=-1.0)), math.ceil(max(logs, default=0.0))
        steps = max((len(curve.values) for curve in curves), default=1)
        has_infinities = not all(map(math.isfinite, values))
        return cls(*size, steps, low, max(high, low + 1), 0.0 in values, has_infinities)

    def x(self, step: int) -> float:
        if self.steps == 1:
            return (LEFT + self.width) / 2.0
        return LEFT + (self.width - LEFT - RIGHT) * step / (self.steps - 1)

    def y(self, value: float) -> float:
        if value == 0.0:
            return self.height - BOTTOM
        if not math.isfinite(value):
            return TOP
        top = TOP + EXTRA * self.has_infinities
        bottom = self.height - BOTTOM - EXTRA * self.has_zeros
        return bottom - (bottom - top) * (math.log10(value) - self.low) / (self.high - self.low)

    def grid(self) -> list[float]:
        """Return the values that have a grid line."""
        every = math.ceil((self.high - self.low) / DECADES)
        decades = [10.0**k for k in range(self.low, self.high + 1, every)]
        return decades + [0.0] * self.has_zeros + [math.inf] * self.has_infinities


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    axis: str,
    size: tuple[int, int] = (720, 320),
    ticks: Sequence[str] | None = None,
    mark: int | None = None,
    dots: bool = True,
) -> Html:
    """Return lines over the same steps, on a logarithmic scale.

    0 and values that are not finite have lines of their own below and above the scale. ``axis`` names the
    steps; ``ticks`` labels each of them ("" for none), by default with its number. ``mark`` is a step with a
    vertical line. With ``dots`` each value has a dot, whose tooltip is the value.
    """
    plane = _Plane.fit(curves, size)
    parts = [*_value_axis(plane), *_step_axis(plane, axis, _number_steps(plane) if ticks is None else ticks)]
    if mark is not None:
        parts.append(
            fill(
                '<path class="mark" d="M{x:.1f},0V{end}"/>', x=plane.x(mark), end=plane.height - BOTTOM + 6.0
            )
        )
    for i, curve in enumerate(curves):
        parts.append(_line(plane, curve, i))
        if dots:
            parts += _dots(plane, curve, axis)
    return fill(
        '<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{parts}</svg>',
        width=plane.width,
        height=plane.height,
        title=escape(title),
        parts=join(parts),
    )


def _value_axis(plane: _Plane) -> Iterator[Html]:
    for value in plane.grid():
        yield fill(
            '<path class="grid" d="M{left},{y:.1f}H{width}"/><text x="{end}" y="{y:.1f}" dy="4" '
            'text-anchor="end">{label}</text>',
            left=LEFT,
            y=plane.y(value),
            width=plane.width,
            end=LEFT - 6.0,
            label=escape(f"{value:,.6g}"),
        )


def _number_steps(plane: _Plane) -> list[str]:
    every = math.ceil(plane.steps / (plane.width / 60.0))
    return ["" if i % every else str(i) for i in range(plane.steps)]


def _step_axis(plane: _Plane, axis: str, ticks: Sequence[str]) -> Iterator[Html]:
    def label(x: float, y: float, text: str) -> Html:
        return fill(
            '<text x="{x:.1f}" y="{y}" text-anchor="middle">{text}</text>', x=x, y=y, text=escape(text)
        )

    for i, tick in enumerate(ticks):
        if tick:
            yield label(plane.x(i), plane.height - 24.0, tick)
    yield label((LEFT + plane.width) / 2.0, plane.height - 6.0, axis)


def _line(plane: _Plane, curve: Curve, index: int) -> Html:
    steps, is_gap = [], True
    for i, value in enumerate(curve.values):
        if value is not None:
            pen = fill("M" if is_gap else "L")
            steps.append(fill("{pen}{x:.1f},{y:.1f}", pen=pen, x=plane.x(i), y=plane.y(value)))
        is_gap = value is None
    return fill(
        '<path class="curve {kind}" data-curve="{index}" d="{steps}"><title>{label}</title></path>',
        kind=escape(curve.kind),
        index=index,
        steps=join(steps),
        label=escape(curve.label),
    )


def _dots(plane: _Plane, curve: Curve, axis: str) -> Iterator[Html]:
    for i, value in enumerate(curve.values):
        if value is not None:
            yield fill(
                '<circle class="point {kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{label}, {axis} {i}: '
                "{value}</title></circle>",
                kind=escape(curve.kind),
                x=plane.x(i),
                y=plane.y(value),
                label=escape(curve.label),
                axis=escape(axis),
                i=i,
                value=number(value),
            )


def legend(entries: Sequence[tuple[str, Html]]) -> Html:
    """Return a sample of each kind of curve with its description; an entry is a kind and a description."""
    samples = (
        fill(
            '<span class="entry"><svg class="pen" viewBox="0 0 40 12" aria-hidden="true"><path class="curve '
            '{kind}" d="M0,6H40"/><circle class="point {kind}" cx="20" cy="6" r="3.5"/></svg> '
            "{description}</span>",
            kind=escape(kind),
            description=description,
        )
        for kind, description in entries
    )
    return fill('<p class="note">{samples}</p>', samples=join(samples, " "))


def column_chart(values: Sequence[float], *, title: str) -> Html:
    """Return numbers as columns up and down from 0, the largest magnitude over the full height."""
    largest = max(map(abs, values), default=0.0) or 1.0
    width = 720.0 / max(len(values), 1)
    columns = [
        fill("M{x:.1f},40v{length:.1f}", x=width * (i + 0.5), length=-36.0 * value / largest)
        if value
        else EMPTY
        for i, value in enumerate(values)
    ]
    return fill(
        '<svg class="columns" viewBox="0 0 720 80" preserveAspectRatio="none" role="img" '
        'aria-label="{title}"><path class="grid" d="M0,40H720"/><path class="column" '
        'stroke-width="{stroke:.2f}" d="{columns}"/></svg>',
        title=escape(title),
        stroke=width * 0.7,
        columns=join(columns),
    )
