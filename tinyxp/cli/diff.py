"""``tinyxp diff``: where two implementations part, and whether it matters."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from tinyxp.cli.sides import given, with_sides


@click.command()
@with_sides
@click.option(
    "--generate",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=0,
    help="Append N greedy tokens of A first.",
)
@click.option("--all", "everything", is_flag=True, help="Show every trace point.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with charts too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def diff(
    a: str, b: str, generate: int, everything: bool, html: Path | None, as_json: bool, **inputs: Any
) -> int:
    """Run the same ids through A and B and hold every trace point against the float64 truth.

    A, which is trusted, and B are each a model and where it runs (MODEL, MODEL@jax:float32,
    MODEL@torch+kernels:bfloat16, MODEL@jax+jit), transformers' own (hf:MODEL, hf:MODEL@:bfloat16), a recorded
    trace (port.npz), or a function from ids to logits or to a trace (package.module:function,
    port.py:function). Without --prompt or --ids, 32 ids are drawn, or a recorded trace's own are taken.

    Exit status 0: they agree, but for rounding; 1: they differ; 2: bad input.
    """
    from tinyxp.doctor import compare
    from tinyxp.doctor.report import lines, record

    with redirect_stdout(sys.stderr):  # a port may print; standard output is the report's
        sides = given(a, b, **inputs)
        found = compare(sides.a, sides.b, sides.ids, mask=sides.mask, generate=generate)
    if html is not None:
        from tinyxp.html.diff import diff_page
        from tinyxp.html.page import write_page

        write_page(html, diff_page(found, decode=sides.decode()))
    if as_json:
        click.echo(json.dumps(record(found), allow_nan=False))
    else:
        click.echo("\n".join(lines(found, everything=everything, decode=sides.decode())))
    return int(not found.agrees)
