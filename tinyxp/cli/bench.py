"""``tinyxp bench``: how fast each backend runs a model, compared with the limits of this machine."""

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
    help="Separated by commas.  [default: the installed ones that have a fast path]",
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
@click.option("--json", "json_file", metavar="FILE", help="Write all measurements, with quartiles.")
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

    MODEL is a file or a folder, or the name of a preset such as gpt2 or tiny. Presets have random weights;
    the time does not depend on their values. The defaults take some minutes; --repeats 1 gives a first
    impression.
    """
    limit_threads(threads)
    from tinyxp.bench.plan import Plan, default_backends
    from tinyxp.bench.plot import draw, need_matplotlib
    from tinyxp.bench.report import record
    from tinyxp.bench.session import measure
    from tinyxp.bench.tables import text
    from tinyxp.files import replacing

    # What can fail is checked before minutes of measuring.
    for option, file in (("json", json_file), ("plot", plot_file)):
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise ValueError(f"{option} is {file!r}, in a folder that does not exist")
    if plot_file is not None:
        need_matplotlib(plot_file)
    plan = Plan(
        model=model,
        backends=default_backends() if names is None else _names(names),
        dtypes=_names(dtypes),
        prompt=prompt,
        repeats=repeats,
        threads=threads,
    )
    results = loading(lambda show: measure(plan, show), "measuring")
    click.echo(text(results))
    if json_file is not None:
        with replacing(Path(json_file)) as stream:
            stream.write(json.dumps(record(results), indent=1).encode())
    if plot_file is not None:
        draw(results, plot_file)


def _names(text: str) -> tuple[str, ...]:
    """Split names at commas; each occurs once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))
