"""``python -m tools.mutants``: judge the laws by decoders that are known to be wrong."""

from __future__ import annotations

import sys

import click

from tinyxp.checks import as_integer
from tinyxp.cli.progress import loading
from tinyxp.testing import select

from . import page
from .matrix import UNAFFECTED, kill_matrix, try_idle_laws
from .mutant_registry import MUTANTS

STYLES = {"text": page.text, "markdown": page.markdown, "json": page.as_json}


def judge_laws(pattern: str, max_examples: int, style: str, *, scope: str = "all", workers: int = 0) -> int:
    """Print which of the laws that match ``pattern`` kill which mutants of their regions.

    Return 1 if a mutant survives, or if the unchanged copy breaks a law; otherwise 0. Raise ValueError if no
    mutant is in the regions of these laws.
    """
    max_examples = as_integer("max_examples", max_examples, low=1)
    laws = [law for law in select(pattern) if law.region not in UNAFFECTED]
    regions = {law.region for law in laws}
    mutants = [mutant for mutant in MUTANTS.values() if mutant.region in regions]
    if not mutants:
        raise ValueError(f"laws is {pattern!r}; there is no mutant in the regions of these laws")
    matrix = loading(
        lambda show: kill_matrix(
            mutants, laws, max_examples=max_examples, scope=scope, workers=workers or None, show=show
        ),
        "judging",
    )
    if scope == "region":
        matrix = try_idle_laws(matrix, max_examples=max_examples)
    click.echo(STYLES[style](matrix))
    return int(bool(matrix.survivors or matrix.copy))


@click.command()
@click.option("--laws", "pattern", metavar="PATTERN", default="*", help="Laws, as in tinyxp check.")
@click.option(
    "--max-examples", metavar="N", type=int, default=20, show_default=True, help="Cases for each law."
)
@click.option(
    "--scope",
    type=click.Choice(["region", "all"]),
    default="region",
    show_default=True,
    help="Try the laws of the mutant's own region, or all laws, which takes ten times as long.",
)
@click.option("--workers", metavar="N", type=int, default=0, help="Processes.  [default: one for each core]")
@click.option("--style", type=click.Choice(list(STYLES)), default="text", show_default=True)
def main(pattern: str, max_examples: int, scope: str, workers: int, style: str) -> None:
    """Judge the laws: does each mutant, a decoder known to be wrong, break a law of its region?

    Exit status 0: each does; 1: one survives, or the unchanged copy breaks a law. Takes minutes.
    """
    sys.exit(judge_laws(pattern, max_examples, style, scope=scope, workers=workers))


if __name__ == "__main__":
    main()
