"""A diagnosis as lines for a terminal, and as a dictionary for programs."""

from __future__ import annotations

import textwrap
from typing import Any

from tinyxp.doctor import report
from tinyxp.doctor.diagnosis import Cause, Diagnosis
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import kind
from tinyxp.doctor.wording import summarize

WIDTH = 100


def render(diagnosis: Diagnosis) -> list[str]:
    """Return the report as lines: the first difference, each cause with its fix, and what was checked."""
    summary = summarize(diagnosis.comparison)
    if diagnosis.comparison.agrees:
        return [summary]
    lines = [summary, ""]
    for number, cause in enumerate(diagnosis.causes, 1):
        lines += _render_cause(number, cause)
    if not diagnosis.causes:
        lines.append("No operation is wrong by itself: the errors of many add up. Compare in a wider dtype.")
    lines.append("")
    if diagnosis.proof:
        lines += _wrap(f"proof   {diagnosis.proof[0].upper()}{diagnosis.proof[1:]}.", "        ")
    before, after = diagnosis.before, diagnosis.after
    if before is not None and after is not None and after.rms < before.rms:
        end = "rounding at every point" if diagnosis.agrees_after else "more than rounding"
        lines.append(
            f"check   with these causes in the trusted model, the error falls from {before.rms:.2e} "
            f"to {after.rms:.2e}: {end}"
        )
    lines += [line for note in diagnosis.notes for line in _wrap(f"note    {note}", "        ")]
    if diagnosis.ran_out:
        lines.append("note    the search reached its time limit (--seconds)")
    return lines


def _render_cause(number: int, cause: Cause) -> list[str]:
    lines = _wrap(f"{number}. {cause.sentence}.", "   ")
    if cause.fix:
        lines += _wrap(f"   Fix: {cause.fix}.", "   ")
    lines.append(f"   at {cause.point}{_describe_extent(cause)}; {_describe_error(cause)}{cause.confidence}")
    if cause.alike:
        lines += _wrap(f"   It would look the same here: {', '.join(cause.alike[:4])}.", "   ")
    return lines


def _describe_extent(cause: Cause) -> str:
    """Say at which other points, or in which blocks, a cause shows."""
    if cause.blocks is not None:
        blocks = ", ".join(map(str, cause.blocks[:6])) + ("..." if len(cause.blocks) > 6 else "")
        return f", in {'block' if len(cause.blocks) == 1 else 'blocks'} {blocks} only"
    others = len(cause.points) - 1
    kinds = sorted({kind(point) for point in cause.points} - {kind(cause.point)})
    more = f" ({', '.join(kinds[:4])}{'...' if len(kinds) > 4 else ''})" if kinds else ""
    return f" and {others} more{more}" if others > 0 else ""


def _describe_error(cause: Cause) -> str:
    if cause.before is None or cause.after is None:
        return ""
    return f"error {cause.before.rms:.2e} -> {cause.after.rms:.2e}; "


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis, with its comparison, as JSON can hold it."""
    return {
        "agrees": diagnosis.comparison.agrees,
        "explained": diagnosis.explained,
        "causes": [_cause_to_dict(cause) for cause in diagnosis.causes],
        "before": _distance_to_dict(diagnosis.before),
        "after": _distance_to_dict(diagnosis.after),
        "agrees_after": diagnosis.agrees_after,
        "proof": diagnosis.proof or None,
        "notes": list(diagnosis.notes),
        "ran_out": diagnosis.ran_out,
        "comparison": report.to_dict(diagnosis.comparison),
    }


def _cause_to_dict(cause: Cause) -> dict[str, Any]:
    return {
        "keys": list(cause.keys),
        "sentence": cause.sentence,
        "fix": cause.fix,
        "point": cause.point,
        "blocks": None if cause.blocks is None else list(cause.blocks),
        "points": list(cause.points),
        "before": _distance_to_dict(cause.before),
        "after": _distance_to_dict(cause.after),
        "confidence": cause.confidence,
        "alike": list(cause.alike),
        "closest": list(cause.closest),
        "closed": report.finite(cause.closed),
    }


def _distance_to_dict(distance: Distance | None) -> dict[str, Any] | None:
    if distance is None:
        return None
    return {"rms": report.finite(distance.rms), "worst": report.finite(distance.worst)}
