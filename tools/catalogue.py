"""The page of all laws: ``python -m tools.catalogue > docs/laws.md``."""

from __future__ import annotations

from tinyxp.testing import LAWS, Law

HEAD = """# The laws

Each line is a sentence that every decoder must keep, and that `tinyxp check` tries to break on every
backend. Values are drawn by Hypothesis on NumPy and converted; what breaks a law is shrunk to the smallest
case and shown with five lines of source that break it again. Laws compare in float64 wherever the library
computes in it: rounding is a million times smaller there than the smallest fault that anybody reports.

A law applies where the subject has what it needs; those that need nothing, or only a mask, positions or a
cache, judge any function from ids to logits (`tinyxp.testing.check_model`). Laws in *italics* compare with
another implementation's numbers; what the others catch alone is on [the page of mutants](mutants.md).

This page is written by `python -m tools.catalogue`.
"""


def as_markdown() -> str:
    """The page."""
    regions: dict[str, list[Law]] = {}
    for law in LAWS.values():
        regions.setdefault(law.region, []).append(law)
    parts = [HEAD]
    for region, laws in sorted(regions.items()):
        parts.append(f"## {region.capitalize()}\n\n| law | says | needs | source |\n|---|---|---|---|")
        parts += [row(law) for law in sorted(laws, key=lambda law: law.name)]
        parts.append("")
    count = f"{len(LAWS)} laws, {sum(law.is_reference for law in LAWS.values())} of them with a reference."
    return "\n".join([*parts, count])


def row(law: Law) -> str:
    """One law as a row of its table."""
    name = f"*{law.name}*" if law.is_reference else law.name
    cells = (name, law.sentence, " ".join(sorted(law.needs)) or "logits", law.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    print(as_markdown())
