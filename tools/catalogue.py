"""The page of all laws: ``python -m tools.catalogue > docs/laws.md``."""

from __future__ import annotations

from tinyxp.testing import LAWS, Law

HEAD = """# The laws

Each law is a sentence that every decoder must keep. `tinyxp check` tries to break it on every backend.
Hypothesis draws values on NumPy, and they are converted. A counterexample is shrunk to the smallest case and
shown with source that reproduces it. Laws compare in float64 if the library computes in it: rounding there is
a million times smaller than the smallest fault that people report.

A law applies if the subject has what it needs. Laws that need nothing, or only a mask, positions or a cache,
judge any function from ids to logits (`tinyxp.testing.check_model`). Laws in *italics* compare with another
implementation's numbers. [The page of mutants](mutants.md) shows what each law detects.

`python -m tools.catalogue` writes this page.
"""


def as_markdown() -> str:
    """Return the page."""
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
    """Return one law as a row of its table."""
    name = f"*{law.name}*" if law.is_reference else law.name
    cells = (name, law.sentence, " ".join(sorted(law.needs)) or "logits", law.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    print(as_markdown())
