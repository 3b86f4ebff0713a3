"""A kill matrix as text, as a page of Markdown, and as JSON."""

from __future__ import annotations

import json
from collections import Counter

from tinyxp.testing import LAWS

from .matrix import Fate, Matrix

INTRODUCTION = """# Mutants

Each mutant is this decoder with one mistake that people make, planted by a change of its source. It must
break a law of the region that the mistake is in. Only the laws of that region are tried here.
A law that kills none of them is tried on all mutants, up to the first that it kills.
`python -m tools.mutants --scope all` tries everything. `make mutants` writes this page.
"""


def text(matrix: Matrix) -> str:
    """Return a line for each mutant, under its region, with the laws that kill it, and the totals."""
    width = max(len(fate.mutant.name) for fate in matrix.fates) + 4
    lines = []
    for region, fates in _by_region(matrix).items():
        lines.append(region)
        lines += [f"  {fate.mutant.name:<{width - 2}}{_killed_by(fate) or 'SURVIVES'}" for fate in fates]
    return "\n".join([*lines, "", *_summary(matrix)])


def markdown(matrix: Matrix) -> str:
    """Return the page: totals, the mutants of each region, and how many of them each law kills."""
    parts = [INTRODUCTION, "\n".join(f"- {line}" for line in _summary(matrix)), ""]
    for region, fates in _by_region(matrix).items():
        parts += [f"## {region}\n", "| mutant | what is wrong | killed by |", "|---|---|---|"]
        parts += [
            f"| `{fate.mutant.name}` | {_escaped(fate.mutant.sentence)} | {_killed_by(fate, '`')} |"
            for fate in fates
        ]
        parts.append("")
    parts += ["## What each law kills\n", "| law | region | mutants |", "|---|---|---|"]
    kills = Counter(name for fate in matrix.fates for name in fate.killers)
    parts += [
        f"| `{name}` | {LAWS[name].region} | {kills[name]} |"
        for name in sorted(matrix.laws, key=lambda name: (LAWS[name].region, name))
    ]
    return "\n".join(parts)


def as_json(matrix: Matrix) -> str:
    """Return the whole matrix as JSON, by the mutants' names."""
    rows = {
        fate.mutant.name: {
            "sentence": fate.mutant.sentence,
            "region": fate.mutant.region,
            "families": fate.mutant.families,
            "expected": fate.mutant.killers,
            "killers": fate.killers,
        }
        for fate in matrix.fates
    }
    return json.dumps(
        {"totals": matrix.totals, "copy": matrix.copy, "laws": matrix.laws, "mutants": rows}, indent=1
    )


def _by_region(matrix: Matrix) -> dict[str, list[Fate]]:
    regions: dict[str, list[Fate]] = {}
    for fate in matrix.fates:
        regions.setdefault(fate.mutant.region, []).append(fate)
    return regions


def _killed_by(fate: Fate, quote: str = "") -> str:
    """Return the killers of the mutant's own region, and how many others there are."""
    others = len(fate.killers) - len(fate.own)
    names = ", ".join(f"{quote}{name}{quote}" for name in fate.own)
    if not names:
        return f"no law of its region, {others} others" if others else ""
    return f"{names} and {others} more" if others else names


def _summary(matrix: Matrix) -> list[str]:
    """Return the totals, and what is not as it should be."""
    lines = [f"{count} {what}" for what, count in matrix.totals.items()]
    lines.append(f"{len(matrix.laws)} laws, of which the unchanged copy breaks {len(matrix.copy)}")
    if matrix.copy:
        lines.append(f"broken by the unchanged copy: {', '.join(matrix.copy)}")
    if matrix.survivors:
        lines.append(f"survivors of their own region's laws: {', '.join(matrix.survivors)}")
    return lines


def _escaped(sentence: str) -> str:
    """Return a sentence with the characters escaped that Markdown interprets."""
    return sentence.replace("*", "\\*").replace("|", "\\|")
