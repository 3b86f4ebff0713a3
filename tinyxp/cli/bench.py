"""``tinyxp bench``: how fast each backend runs a model, beside what this machine can do."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tinyxp.cli.progress import loading
from tinyxp.cli.threads import limit_threads


@click.command()
@click.argument("model", default="gpt2")
@click.option(
    "--backends",
    "names",
    metavar="NAMES",
    help="Separated by commas.  [default: those of numpy, torch and jax that are installed]",
)
@click.option("--dtypes", metavar="NAMES", default="float32", show_default=True, help="Separated by commas.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads each library may use.")
@click.option(
    "--prompt", type=int, metavar="N", help="Tokens of the prompt.  [default: 128, or half of the context]"
)
@click.option(
    "--repeats",
    type=int,
    metavar="N",
    default=5,
    show_default=True,
    help="Measurements of each time; three times as many of a step.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write all that was measured, with quartiles.")
@click.option("--plot", "plot_file", metavar="FILE", help="Draw a picture: .png, .svg or .pdf.")
def bench(
    model: str,
    names: str | None,
    dtypes: str,
    threads: int | None,
    prompt: int | None,
    repeats: int,
    json_file: str | None,
    plot_file: str | None,
) -> None:
    """Measure MODEL on each backend: prefill, decode, memory, and what a cache saves.

    MODEL is a file or a folder, or the name of a preset such as gpt2 or tiny, whose weights are random: the
    time does not depend on their values. Takes some minutes at the default; --repeats 1 is a first look.
    """
    limit_threads(threads)
    from tinyxp.bench.measure import measure
    from tinyxp.bench.plan import Plan, installed
    from tinyxp.bench.plot import draw, need_matplotlib
    from tinyxp.bench.report import record
    from tinyxp.bench.tables import text
    from tinyxp.files import replacing

    # Nothing is to fail after minutes of measuring that can be seen now.
    for option, file in (("json", json_file), ("plot", plot_file)):
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise ValueError(f"{option} is {file!r}, in a folder that is not there")
    if plot_file is not None:
        need_matplotlib(plot_file)
    plan = Plan(
        model=model,
        backends=installed() if names is None else _names(names),
        dtypes=_names(dtypes),
        prompt=prompt,
        repeats=repeats,
        threads=threads,
    )
    found = loading(lambda show: measure(plan, show), "measuring")
    click.echo(text(found))
    if json_file is not None:
        with replacing(Path(json_file)) as stream:
            stream.write(json.dumps(record(found), indent=1).encode())
    if plot_file is not None:
        draw(found, plot_file)


def _names(given: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in given.split(",")))
