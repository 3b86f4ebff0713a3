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
    from tinyxp.html.forward_pass import ForwardPass
    from tinyxp.text.tokenizer import Tokenizer


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--ids", help="Token ids such as 1,2,3 instead of PROMPT.")
@click.option("--tokenizer", help="Where the tokenizer is, if not with the model.")
@click.option("--backend", default="numpy", show_default=True, help="The array library.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--dtype", default="float32", show_default=True, help="float64, float32, bfloat16 or float16.")
@click.option("--points", default="*", help="Show only these trace points, such as 'blocks.0.*,logits'.")
@click.option("-o", "--output", help="Record the points in an .npz or .safetensors file.")
@click.option("--html", help="Write a self-contained page that shows the pass.")
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

    Each line describes one trace point, a named value of the pass: its shape, dtype, minimum, maximum, mean
    and root mean square. MODEL is a file, a folder, a hub id, or holmes, the model included with tinyxp.
    """
    limit_threads(threads)
    import numpy as np

    from tinyxp import registry, tracing
    from tinyxp.doctor.trace_files import SUFFIXES, write_trace
    from tinyxp.formats import load
    from tinyxp.html.forward_pass import ForwardPass

    adapter = registry.backend(backend)
    adapter.dtype(dtype)
    if output is not None and Path(output).suffix.lower() not in SUFFIXES:
        raise ValueError(f"output is {output!r}; it must end in {' or '.join(SUFFIXES)}")
    text, tokens = _read_tokens(model, prompt, ids, tokenizer)
    params = loading(lambda show: load(model, xp=adapter.xp, dtype=dtype, progress=show))
    # Numbers that are not finite are shown, not warned about.
    with adapter.inference(), np.errstate(all="ignore"):
        run = ForwardPass(params, tokens, tracing.trace(params, [list(tokens)]), _speller(text))
        selected = _select(points, run.points)
        walk = _to_dict(run, selected) | {"model": model, "backend": adapter.name}
        if html is not None:
            from tinyxp.html.page import write_page
            from tinyxp.html.trace_page import build_trace_page

            write_page(Path(html), build_trace_page(run, _shorten_path(model), f"{dtype} on {adapter.name}"))
    if output is not None:
        write_trace(
            Path(output),
            {name: adapter.to_numpy(run.points[name]) for name in selected},
            ids=np.asarray([tokens], dtype=np.int64),
        )
    click.echo(json.dumps(walk, allow_nan=False) if as_json else "\n".join(_render(walk)))
    for written in filter(None, (output, html)):
        click.echo(f"wrote {written}", err=True)


def _read_tokens(
    model: str, prompt: str | None, ids: str | None, tokenizer: str | None
) -> tuple[Tokenizer | None, tuple[int, ...]]:
    """Return the tokenizer, None if ids are given and the model has none, and the ids of the sequence."""
    from tinyxp.formats import load_config
    from tinyxp.text.tokenizer import load_tokenizer

    if prompt is not None and ids is not None:
        raise ValueError("PROMPT and --ids are both given; one of them is needed")
    if prompt is None and ids is None:
        raise ValueError("neither PROMPT nor --ids is given; one of them is needed")
    if tokenizer is None:
        load_config(model)  # reports a missing model as such, not as a missing tokenizer
    if ids is not None:
        try:
            text = load_tokenizer(tokenizer or model)
        except (ValueError, ImportError):
            if tokenizer is not None:
                raise
            text = None
        return text, _parse_ids(ids)
    if prompt == "-":
        if sys.stdin is None:
            raise ValueError("PROMPT is '-', but standard input is closed")
        prompt = sys.stdin.read()
    text = load_tokenizer(tokenizer or model)
    tokens = tuple(text.encode(prompt or ""))
    if not tokens:
        raise ValueError("PROMPT is empty, and this model's tokenizer puts no token before a text")
    return text, tokens


def _parse_ids(ids: str) -> tuple[int, ...]:
    try:
        return tuple(int(x) for x in ids.split(","))
    except ValueError:
        raise ValueError(f"ids is {ids!r}; it must be integers separated by commas") from None


def _speller(text: Tokenizer | None) -> Callable[[int], str]:
    """Return a function from an id to its text on one visible line; # and the id if no tokenizer knows it."""
    from tinyxp.html.text import visible

    def spell(index: int) -> str:
        try:
            return f"#{index}" if text is None else visible(text.token_bytes(index)) or f"#{index}"
        except ValueError:
            return f"#{index}"

    return spell


def _select(points: str, names: Iterable[str]) -> list[str]:
    """Return the names that match one of the patterns. Raise ValueError for a pattern that matches none."""
    patterns, known = [pattern.strip() for pattern in points.split(",")], list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ValueError(
                f"points has {pattern!r}, which matches no trace point, such as {', '.join(known[:3])}"
            )
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _to_dict(run: ForwardPass, selected: list[str]) -> dict[str, Any]:
    """Return the walk as JSON holds it: a number that is not finite is None, and their count is given."""
    from tinyxp.dtypes import dtype_name
    from tinyxp.html.forward_pass import next_tokens

    return {
        "dtype": dtype_name(run.params.dtype),
        "ids": list(run.ids),
        "tokens": [run.describe(index) for index in run.ids],
        "points": {name: _figures(run, name) for name in selected},
        "next": [{"id": i, "text": run.describe(i), "p": _finite(p)} for i, p in next_tokens(run)],
    }


def _figures(run: ForwardPass, name: str) -> dict[str, Any]:
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


def _render(record: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the walk."""
    yield f"{len(record['ids'])} tokens, {record['dtype']} on {record['backend']}"
    for i, (index, token) in enumerate(zip(record["ids"], record["tokens"], strict=True)):
        yield f"  {i:>4} {index:>7}  {token}"
    width = max(map(len, record["points"]))
    shapes = {name: str(tuple(point["shape"])) for name, point in record["points"].items()}
    widest = max(map(len, shapes.values()))
    before: str | None = ""
    for name, point in record["points"].items():
        block = name.split(".")[1] if name.startswith("blocks.") else None
        if block != before:
            yield "" if block is None else f"\nblock {block}"
        before = block
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


def _shorten_path(model: str) -> str:
    """Return the model's name for a page, without the folders of the machine that wrote it."""
    return model if not Path(model).exists() else Path(model).resolve().name
