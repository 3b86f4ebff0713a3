"""The section of a comparison's page about what was compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyxp.doctor.distance import RMS_FACTOR, WORST_FACTOR
from tinyxp.doctor.verdicts import Comparison, Verdict
from tinyxp.html.elements import Section, cell, table, token
from tinyxp.html.markup import Html, escape, fill, join

MEANINGS = {
    Verdict.EXACT: "A and B are equal bit for bit",
    Verdict.NOISE: "A and B differ by no more than rounding explains",
    Verdict.FAULT: "wrong: this operation adds more error than rounding explains",
    Verdict.CARRIED: "wrong only because its inputs are wrong",
    Verdict.SHAPE: "the arrays have different shapes",
}
SHOWN_IDS = 48
"""How many ids are listed at most."""


def side_section(comparison: Comparison, describe_id: Callable[[int], str]) -> Section:
    """Return the sides, their input, and what they are judged by."""
    facts = {
        "ids": _ids(comparison, describe_id),
        "reference": escape(comparison.reference or "none: neither side has weights"),
        "rounding": escape(comparison.noise),
    }
    if comparison.reference:
        facts["limit"] = fill(
            "{rms:g} times the root mean square of the rounding error or {worst:g} times its largest value, "
            "plus one rounding of the result; a larger error is a fault",
            rms=RMS_FACTOR,
            worst=WORST_FACTOR,
        )
    if comparison.notes:
        facts["notes"] = join(map(escape, comparison.notes), "<br>")
    listed = join(
        fill("<dt>{name}</dt><dd>{fact}</dd>", name=escape(name), fact=fact) for name, fact in facts.items()
    )
    return Section(
        "compared",
        "What was compared",
        fill("Both sides ran on the same ids. Every trace point that both have is compared."),
        join([_sides(comparison), fill("<dl>{listed}</dl>", listed=listed), _verdicts(comparison)]),
    )


def _sides(comparison: Comparison) -> Html:
    roles = ("under test", "trusted") if comparison.judged == "A" else ("trusted", "under test")
    if not comparison.reference:
        roles = ("compared with B", "compared with A")
    sides, traces = (comparison.a, comparison.b), (comparison.trace_a, comparison.trace_b)
    rows = [
        (
            escape(label),
            [
                cell(fill('<span class="long">{name}</span>', name=escape(side.name))),
                cell(escape(trace.dtype)),
                cell(escape(role)),
            ],
        )
        for label, side, trace, role in zip("AB", sides, traces, roles, strict=True)
    ]
    return table("Sides", [*map(escape, ("side", "name", "dtype", "role"))], rows, kind="words")


def _ids(comparison: Comparison, describe_id: Callable[[int], str]) -> Html:
    ids, mask = comparison.batch.ids, comparison.batch.mask
    facts = [fill("{b} &times; {t} (rows, positions)", b=ids.shape[0], t=ids.shape[1])]
    if mask is not None:
        real = int(np.count_nonzero(mask))
        facts.append(fill("the mask leaves {real} of {size} as real tokens", real=real, size=mask.size))
    if comparison.generated:
        facts.append(
            fill("the last {n} of each row are A's greedy continuation", n=comparison.generated),
        )
    shown = [token(describe_id(i)) for i in ids.ravel()[:SHOWN_IDS].tolist()]
    shown += [fill("...")] * (ids.size > SHOWN_IDS)
    return fill("{facts}<br>{shown}", facts=join(facts, "; "), shown=join(shown, " "))


def _verdicts(comparison: Comparison) -> Html:
    verdicts = [row.verdict for row in comparison.rows]
    rows = [
        (
            fill("<strong>{verdict}</strong>", verdict=escape(verdict)),
            [cell(escape(meaning)), cell(escape(verdicts.count(verdict)))],
        )
        for verdict, meaning in MEANINGS.items()
    ]
    return table("Verdicts", [*map(escape, ("verdict", "meaning", "points"))], rows, kind="words")
