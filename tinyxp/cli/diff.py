"""``tinyxp diff``: where two implementations differ first, and whether it matters."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from tinyxp.cli.sides import open_sides, with_sides


@click.command()
@with_sides
@click.option(
    "--generate",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=0,
    help="First append N greedy tokens of A.",
)
@click.option("--all", "everything", is_flag=True, help="Show every trace point.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a page with charts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def diff(
    a: str, b: str, generate: int, everything: bool, html: Path | None, as_json: bool, **inputs: Any
) -> int:
    """Run the same ids through A and B and judge every trace point against a float64 run.

    A is trusted, B is in doubt. Each is one of: a model and where it runs (MODEL, MODEL@jax:float32,
    MODEL@torch+kernels:bfloat16, MODEL@jax+jit); transformers' own model (hf:MODEL, hf:MODEL@:bfloat16). Or a
    recorded trace (port.npz); or a function from ids to logits or to a trace (package.module:function,
    port.py:function). Without --prompt or --ids, the ids are those of a recorded trace, or 32 drawn ones.

    Exit status 0: they agree within rounding; 1: they differ; 2: bad input.
    """
    from tinyxp.doctor import compare
    from tinyxp.doctor.report import render, to_dict

    with redirect_stdout(sys.stderr):  # a port may print; standard output is for the report
        sides = open_sides(a, b, **inputs)
        comparison = compare(sides.a, sides.b, sides.ids, mask=sides.mask, generate=generate)
    if html is not None:
        from tinyxp.html.diff_page import build_diff_page
        from tinyxp.html.page import write_page

        write_page(html, build_diff_page(comparison, decode=sides.decode()))
    if as_json:
        click.echo(json.dumps(to_dict(comparison), allow_nan=False))
    else:
        click.echo("\n".join(render(comparison, everything=everything, decode=sides.decode())))
    return int(not comparison.agrees)
