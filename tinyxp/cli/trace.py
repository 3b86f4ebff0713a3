"""``tinyxp trace``: a walk through one forward pass."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyxp.cli.progress import loading
from tinyxp.cli.threads import limit_threads

if TYPE_CHECKING:
    from tinyxp.html.measure import Run
    from tinyxp.text.tokenizer import Tokenizer


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--ids", help="Token ids such as 1,2,3 instead of PROMPT.")
@click.option("--tokenizer", help="Where the tokenizer is, if not with the model.")
@click.option("--backend", default="numpy", show_default=True, help="The array library.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--dtype", default="float32", show_default=True, help="float64, float32, bfloat16 or float16.")
@click.option("--points", default="*", help="Only these trace points, such as 'blocks.0.*,logits'.")
@click.option("-o", "--output", help="Record the values of the points in a .npz or .safetensors file.")
@click.option("--html", help="Write a page that shows the pass, one file that needs no network.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def trace(
    model: str,
    prompt: str | None,
    ids: str | None,
    tokenizer: str | None,
    backend: str,
    threads: int | None,
    dtype: str,
    points: str,
    output: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Walk through one forward pass of MODEL over PROMPT ('-' reads it from standard input).

    Every value on the way has a name: the trace points. A line gives the shape, the dtype, the least and the
    largest number, the mean and the root mean square of one. MODEL is a file, a folder, a hub id, or holmes,
    which comes with tinyxp.
    """
    limit_threads(threads)
    import numpy as np

    import tinyxp
    from tinyxp.doctor.recorded import SUFFIXES, write_trace
    from tinyxp.html.measure import Run

    adapter = tinyxp.backend(backend)
    adapter.dtype(dtype)
    if output is not None and Path(output).suffix.lower() not in SUFFIXES:
        raise ValueError(f"output is {output!r}; it must end in {' or '.join(SUFFIXES)}")
    text, tokens = _tokens(model, prompt, ids, tokenizer)
    params = loading(lambda show: tinyxp.load(model, xp=adapter.xp, dtype=dtype, progress=show))
    with (
        adapter.inference(),
        np.errstate(all="ignore"),
    ):  # numbers that are not finite are shown, not warned of
        run = Run(params, tokens, tinyxp.trace(params, [list(tokens)]), _speller(text))
        chosen = _chosen(points, run.points)
        record = _record(run, chosen) | {"model": model, "backend": adapter.name}
        if html is not None:
            from tinyxp.html.page import write_page
            from tinyxp.html.trace import page

            write_page(Path(html), page(run, _name(model), f"{dtype} on {adapter.name}"))
    if output is not None:
        write_trace(
            Path(output),
            {name: adapter.to_numpy(run.points[name]) for name in chosen},
            ids=np.asarray([tokens], dtype=np.int64),
        )
    click.echo(json.dumps(record, allow_nan=False) if as_json else "\n".join(_walk(record)))
    for written in filter(None, (output, html)):
        click.echo(f"wrote {written}", err=True)


def _tokens(
    model: str, prompt: str | None, ids: str | None, tokenizer: str | None
) -> tuple[Tokenizer | None, tuple[int, ...]]:
    """The tokenizer, None where only ids are given and the model has none, and the ids of the sequence."""
    import tinyxp
    from tinyxp.formats import load_config

    if prompt is not None and ids is not None:
        raise ValueError("PROMPT and --ids are both given; one of them is needed")
    if prompt is None and ids is None:
        raise ValueError("neither PROMPT nor --ids is given; one of them is needed")
    if tokenizer is None:
        load_config(model)  # so that a model that is not there is not reported as a missing tokenizer
    if ids is not None:
        try:
            text = tinyxp.load_tokenizer(tokenizer or model)
        except (ValueError, ImportError):
            if tokenizer is not None:
                raise
            text = None
        return text, _parsed(ids)
    if prompt == "-":
        if sys.stdin is None:
            raise ValueError("PROMPT is '-', but standard input is closed")
        prompt = sys.stdin.read()
    text = tinyxp.load_tokenizer(tokenizer or model)
    found = tuple(text.encode(prompt or ""))
    if not found:
        raise ValueError("PROMPT is empty, and this model's tokenizer puts no token before a text")
    return text, found


def _parsed(ids: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in ids.split(","))
    except ValueError:
        raise ValueError(f"ids is {ids!r}; it must be integers with commas between them") from None


def _speller(text: Tokenizer | None) -> Callable[[int], str]:
    """A function from a token to one visible line; # and the id where no tokenizer knows it."""
    from tinyxp.html.page import visible

    def spelled(index: int) -> str:
        try:
            return f"#{index}" if text is None else visible(text.token_bytes(index)) or f"#{index}"
        except ValueError:
            return f"#{index}"

    return spelled


def _chosen(patterns: str, names: Iterable[str]) -> list[str]:
    """The names that fit one of the patterns, in their order; ValueError for a pattern that fits none."""
    wanted, known = [pattern.strip() for pattern in patterns.split(",")], list(names)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ValueError(
                f"points has {pattern!r}, which fits no trace point, such as {', '.join(known[:3])}"
            )
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in wanted)]


def _record(run: Run, chosen: list[str]) -> dict[str, Any]:
    """What the walk tells, for JSON: a number that is not finite is null, and how many there are is told."""
    from tinyxp.dtypes import dtype_name
    from tinyxp.html.measure import next_tokens

    return {
        "dtype": dtype_name(run.params.dtype),
        "ids": list(run.ids),
        "tokens": [run.text(index) for index in run.ids],
        "points": {name: _figures(run, name) for name in chosen},
        "next": [{"id": i, "text": run.text(i), "p": _finite(p)} for i, p in next_tokens(run)],
    }


def _figures(run: Run, name: str) -> dict[str, Any]:
    import numpy as np

    from tinyxp.dtypes import dtype_name

    x = run.point(name)
    figures = {"min": x.min(), "max": x.max(), "mean": x.mean(), "rms": np.sqrt(np.mean(x * x))}
    return {
        "shape": list(run.points[name].shape),
        "dtype": dtype_name(run.points[name].dtype),
        **{figure: _finite(float(value)) for figure, value in figures.items()},
        "not_finite": int(x.size - np.isfinite(x).sum()),
    }


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _walk(record: dict[str, Any]) -> Iterable[str]:
    """The lines of the walk."""
    yield f"{len(record['ids'])} tokens, {record['dtype']} on {record['backend']}"
    for i, (index, token) in enumerate(zip(record["ids"], record["tokens"], strict=True)):
        yield f"  {i:>4} {index:>7}  {token}"
    width = max(map(len, record["points"]))
    shapes = {name: str(tuple(point["shape"])) for name, point in record["points"].items()}
    widest = max(map(len, shapes.values()))
    before = None
    for name, point in record["points"].items():
        part = " ".join(name.split(".")[:2]).replace("blocks", "block") if name.startswith("blocks.") else ""
        if part != before:
            yield f"\n{part}" if part else ""
        before = part
        numbers = "  ".join(
            f"{figure} {_short(point[figure]):>10}" for figure in ("min", "max", "mean", "rms")
        )
        broken = f"  {point['not_finite']} not finite" if point["not_finite"] else ""
        yield f"  {name:<{width}}  {shapes[name]:<{widest}}  {point['dtype']}  {numbers}{broken}"
    yield "\nnext token"
    for guess in record["next"]:
        yield f"  {_short(guess['p']):>8}  {guess['id']:>7}  {guess['text']}"


def _short(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"


def _name(model: str) -> str:
    """What a page calls the model: no folders of the machine that wrote it."""
    return model if not Path(model).exists() else Path(model).resolve().name
