"""``tinyxp check --mutants``: the laws themselves are judged, by decoders that are known to be wrong."""

from __future__ import annotations

import click

from tinyxp.cli.progress import loading


def judge_laws(pattern: str, max_examples: int, style: str) -> int:
    """Prints which of the laws that fit ``pattern`` kill which mutants of their regions, as "text",
    "markdown" or "json"; returns 1 where a mutant survives, or where the copy without a change does not."""
    from tinyxp.testing import select
    from tinyxp.testing.mutants import MUTANTS, page
    from tinyxp.testing.mutants.matrix import UNMOVED, kill_matrix

    laws = [law for law in select(pattern) if law.region not in UNMOVED]
    regions = {law.region for law in laws}
    mutants = [mutant for mutant in MUTANTS.values() if mutant.region in regions]
    if not mutants:
        raise ValueError(f"laws is {pattern!r}; there is no mutant in the regions of these laws")
    matrix = loading(lambda show: kill_matrix(mutants, laws, max_examples=max_examples, show=show))
    render = {"text": page.text, "markdown": page.markdown, "json": page.as_json}[style]
    click.echo(render(matrix))
    return int(bool(matrix.survivors or matrix.copy))
