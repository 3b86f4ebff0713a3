"""``tinyxp diagnose``: why two implementations differ."""

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
    help="Time limit of the search.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def diagnose(a: str, b: str, seconds: float, as_json: bool, **inputs: Any) -> int:
    """Find what B does wrong: put the faults that people make into A's model until it computes what B does.

    A and B are written as for 'tinyxp diff'; one of them must have weights. More trace points of B give a
    sharper answer, but logits alone are enough.

    Exit status 0: they agree; 1: they differ, even if no cause was found; 2: bad input.
    """
    from tinyxp.doctor import diagnose as examine
    from tinyxp.doctor.diagnosis_report import render, to_dict

    with redirect_stdout(sys.stderr):  # a port may print; standard output is the report's
        sides = open_sides(a, b, **inputs)
        diagnosis = examine(sides.a, sides.b, sides.ids, mask=sides.mask, seconds=seconds)
    if as_json:
        click.echo(json.dumps(to_dict(diagnosis), allow_nan=False))
    else:
        click.echo("\n".join(render(diagnosis)))
    return int(not diagnosis.comparison.agrees)
