"""A diagnosis as lines for a terminal, and as a record for programs."""

from __future__ import annotations

import textwrap
from typing import Any

from tinyxp.doctor.diagnosis import Cause, Diagnosis
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.points import kind
from tinyxp.doctor.report import finite
from tinyxp.doctor.report import to_dict as comparison_record
from tinyxp.doctor.wording import summarize

WIDTH = 100


def lines(found: Diagnosis) -> list[str]:
    """The whole report: what was found, each cause with what to do, and what is known of it."""
    said = [summarize(found.comparison), ""]
    if found.comparison.agrees:
        return said[:1]
    for number, cause in enumerate(found.causes, 1):
        said += _cause(number, cause)
    if not found.causes:
        said.append(
            "No point parts by itself: the errors of many operations add up. Compare in a wider dtype."
        )
    said.append("")
    if found.proof:
        said += _wrapped(f"proof   {found.proof[0].upper()}{found.proof[1:]}.", "        ")
    if found.before is not None and found.after is not None and found.after.rms < found.before.rms:
        end = "rounding at every point" if found.agrees_after else "not all of it rounding"
        said.append(
            f"check   with this put into the trusted run, the error falls from {found.before.rms:.2e} "
            f"to {found.after.rms:.2e}: {end}"
        )
    said += [line for note in found.notes for line in _wrapped(f"note    {note}", "        ")]
    if found.ran_out:
        said.append("note    the search stopped at its time limit (--seconds)")
    return said


def _cause(number: int, cause: Cause) -> list[str]:
    said = _wrapped(f"{number}. {cause.sentence}.", "   ")
    if cause.fix:
        said += _wrapped(f"   Mend it: {cause.fix}.", "   ")
    said.append(f"   at {cause.point}{_extent(cause)}; {_error(cause)}{cause.confidence}")
    if cause.alike:
        said += _wrapped(f"   It would look the same here: {', '.join(cause.alike[:4])}.", "   ")
    return said


def _extent(cause: Cause) -> str:
    """Where else, in words."""
    if cause.blocks is not None:
        blocks = ", ".join(map(str, cause.blocks[:6])) + ("..." if len(cause.blocks) > 6 else "")
        return f", in {'block' if len(cause.blocks) == 1 else 'blocks'} {blocks} only"
    others = len(cause.points) - 1
    kinds = sorted({kind(point) for point in cause.points} - {kind(cause.point)})
    more = f" ({', '.join(kinds[:4])}{'...' if len(kinds) > 4 else ''})" if kinds else ""
    return f" and {others} more{more}" if others > 0 else ""


def _error(cause: Cause) -> str:
    if cause.before is None or cause.after is None:
        return ""
    return f"error {cause.before.rms:.2e} -> {cause.after.rms:.2e}; "


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def record(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON has it, with the comparison."""

    def distance(d: Distance | None) -> dict[str, Any] | None:
        return None if d is None else {"rms": finite(d.rms), "worst": finite(d.worst)}

    return {
        "agrees": found.comparison.agrees,
        "explained": found.explained,
        "causes": [
            {
                "keys": list(cause.keys),
                "sentence": cause.sentence,
                "fix": cause.fix,
                "point": cause.point,
                "blocks": None if cause.blocks is None else list(cause.blocks),
                "points": cause.points,
                "before": distance(cause.before),
                "after": distance(cause.after),
                "confidence": cause.confidence,
                "alike": list(cause.alike),
                "closest": list(cause.closest),
                "closed": finite(cause.closed),
            }
            for cause in found.causes
        ],
        "before": distance(found.before),
        "after": distance(found.after),
        "agrees_after": found.agrees_after,
        "proof": found.proof or None,
        "notes": found.notes,
        "ran_out": found.ran_out,
        "comparison": comparison_record(found.comparison),
    }
