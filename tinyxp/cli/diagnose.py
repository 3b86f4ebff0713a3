"""``tinyxp diagnose``: why two implementations part."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from tinyxp.cli.sides import open_sides, with_sides


@click.command()
@with_sides
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="How long to search.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def diagnose(a: str, b: str, seconds: float, as_json: bool, **inputs: Any) -> int:
    """Say what B does wrong: faults that people make are tried on A's weights until they answer as B does.

    A and B are written as for 'tinyxp diff'; one of them must have weights. The more trace points B has, the
    sharper the answer, but logits alone will do.

    Exit status 0: they agree; 1: they differ, whether or not a cause was found; 2: bad input.
    """
    from tinyxp.doctor import diagnose as examine
    from tinyxp.doctor.diagnosis_report import lines, record

    with redirect_stdout(sys.stderr):  # a port may print; standard output is the report's
        sides = open_sides(a, b, **inputs)
        found = examine(sides.a, sides.b, sides.ids, mask=sides.mask, seconds=seconds)
    if as_json:
        click.echo(json.dumps(record(found), allow_nan=False))
    else:
        click.echo("\n".join(lines(found)))
    return int(not found.comparison.agrees)
