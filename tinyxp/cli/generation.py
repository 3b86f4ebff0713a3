"""``tinyxp generate``: continue a prompt, and stream the text."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tinyxp.cli.progress import loading
from tinyxp.cli.threads import limit_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tinyxp.params import Params
    from tinyxp.text.base import Tokenizer


@click.command()
@click.argument("prompt")
@click.option(
    "-m",
    "--model",
    help="A Hugging Face folder or hub id, .gguf, llama2.c .bin or .npz.  [default: holmes, which is part of "
    "tinyxp]",
)
@click.option("--tokenizer", help="The tokenizer's path or name.  [default: the model's]")
@click.option(
    "--backend", default="numpy", show_default=True, help="The array library: see 'tinyxp backends'."
)
@click.option("--device", help="The device to compute on, such as cuda:0.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--dtype", help="float64, float32, bfloat16, float16 or int8.  [default: as stored]")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=0), default=100, show_default=True)
@click.option(
    "--temperature",
    type=float,
    help="0 takes the likeliest token.  [default: that of the model's generation_config.json, else 0]",
)
@click.option("--top-k", type=int, help="Draw from the k likeliest tokens only.")
@click.option("--top-p", type=float, help="Draw from the fewest tokens whose probabilities add up to p only.")
@click.option("--seed", type=int, help="The same seed gives the same text on every backend.")
@click.option("--ignore-eos", is_flag=True, help="Continue after the end of the text.")
@click.option("--slide", is_flag=True, help="Continue beyond the model's context with a sliding window.")
@click.option("--no-cache", is_flag=True, help="Run the whole sequence again for each token.")
@click.option("--stats", is_flag=True, help="Print times and tokens/s to standard error.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of text.")
def generate(
    prompt: str,
    model: str | None,
    threads: int | None,
    slide: bool,
    stats: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue PROMPT ('-' reads it from standard input).

    The continuation goes to standard output as it is generated. If that is piped, nothing else goes there.
    """
    limit_threads(threads)
    from tinyxp.formats.bundled import DEFAULT_MODEL, find_bundled

    if prompt == "-":
        if sys.stdin is None:
            raise ValueError("PROMPT is '-', but standard input is closed")
        prompt = sys.stdin.read()
    if model is None:  # the bundled model is stored in float16
        model, options["dtype"] = str(find_bundled(DEFAULT_MODEL)), options["dtype"] or "float32"
    if options["temperature"] is None:
        options["temperature"] = default_temperature(Path(model))
    loaded = _load(prompt, model, options)
    _warn_of_length(loaded, options["max_new_tokens"], slide)

    writer = _Writer(prompt, quiet=as_json)
    pieces = loaded.tokenizer.stream()
    for index in loaded.ids:  # so that the first new token is spelled as it is inside a text
        pieces.push(index)
    times, ids = [time.perf_counter()], []
    interrupted = False
    try:
        for index in _new_ids(loaded, slide, options):
            times.append(time.perf_counter())
            ids.append(index)
            if options["ignore_eos"] or index not in loaded.tokenizer.eos_ids:
                writer.write(pieces.push(index))
    except KeyboardInterrupt:
        interrupted = True
    writer.write(pieces.flush())
    writer.close()
    figures = _figures(len(loaded.ids), times)
    if as_json:
        record: dict[str, Any] = {
            "prompt": prompt,
            "text": writer.text,
            "prompt_ids": loaded.ids,
            "ids": ids,
            "backend": loaded.params.backend.name,
            "dtype": loaded.dtype,
        }
        click.echo(json.dumps(record | figures))
    if stats:
        click.echo(_sentence(figures, f"{loaded.params.backend.name} {loaded.dtype}"), err=True)
    if interrupted:
        raise KeyboardInterrupt


class _Loaded(NamedTuple):
    """A model with its tokenizer, the prompt's ids, and the name of the dtype that it computes in."""

    params: Params
    tokenizer: Tokenizer
    ids: list[int]
    dtype: str


def _load(prompt: str, model: str, options: dict[str, Any]) -> _Loaded:
    """Load the tokenizer and the model; what can be checked without the model is checked before."""
    from tinyxp import registry
    from tinyxp.dtypes import dtype_name
    from tinyxp.engine import engine_of
    from tinyxp.formats import load, load_config
    from tinyxp.text.tokenizer import load_tokenizer

    backend, dtype, device = registry.backend(options["backend"]), options["dtype"], options["device"]
    engine, is_int8 = engine_of(backend), options["dtype"] == "int8"
    if is_int8:
        engine.check_int8()
        dtype = "float32"
    elif dtype is not None:
        backend.dtype(dtype)
    backend.device(device)
    if options["tokenizer"] is None:
        load_config(model)  # so that a missing model is not reported as a missing tokenizer
    tokenizer = load_tokenizer(options["tokenizer"] or model)
    ids = tokenizer.encode(prompt)
    if not ids:
        raise ValueError("PROMPT is empty, and this model's tokenizer puts no token before a text")
    params = loading(lambda show: load(model, xp=backend.xp, dtype=dtype, device=device, progress=show))
    params = engine.quantize(params) if is_int8 else engine.prepare(params)
    backend.synchronize(params["embed.weight"])
    return _Loaded(params, tokenizer, ids, "int8" if is_int8 else dtype_name(params.dtype))


def _warn_of_length(loaded: _Loaded, max_new_tokens: int, slide: bool) -> None:
    config, tokens = loaded.params.config, len(loaded.ids)
    if config.position == "rope" and tokens + max_new_tokens > config.max_seq_len and not slide:
        click.echo(
            f"tinyxp: {tokens} prompt and {max_new_tokens} new tokens may exceed the {config.max_seq_len} "
            "that this model was trained on; --slide keeps to them",
            err=True,
        )


def _new_ids(loaded: _Loaded, slide: bool, options: dict[str, Any]) -> Iterator[int]:
    from tinyxp.generation import stream

    params, tokenizer = loaded.params, loaded.tokenizer
    ends = [index for index in tokenizer.eos_ids if index < params.config.vocab_size]
    steps = stream(
        params,
        [loaded.ids],
        options["max_new_tokens"],
        temperature=options["temperature"],
        top_k=options["top_k"],
        top_p=options["top_p"],
        seed=options["seed"],
        eos=None if options["ignore_eos"] else ends,
        cache=not options["no_cache"],
        overflow="slide" if slide else "raise",
        vocab_size=tokenizer.vocab_size,
    )
    return (int(step[0]) for step in steps)


def default_temperature(model: Path) -> float:
    """Return the temperature of a model folder's generation_config.json; 0 if it does not sample."""
    from tinyxp.files import read_json

    path = model / "generation_config.json"
    if not path.is_file():
        return 0.0
    settings = read_json(path)
    return float(settings.get("temperature") or 1.0) if settings.get("do_sample") is True else 0.0


class _Writer:
    """Writes text to standard output as it is generated; on a terminal, the prompt comes first."""

    def __init__(self, prompt: str, *, quiet: bool) -> None:
        self.text = ""
        self.quiet = quiet
        if not quiet and sys.stdout.isatty():
            click.secho(prompt, nl=False, dim=True)

    def write(self, piece: str) -> None:
        self.text += piece
        if piece and not self.quiet:
            click.echo(piece, nl=False)

    def close(self) -> None:
        if not self.quiet:
            click.echo()


def _figures(prompt_tokens: int, times: list[float]) -> dict[str, Any]:
    """Return numbers of tokens, the time of the first and the rate of the others.

    ``times`` are the start, then the time of each new token. The rate is that from the second token on: by
    then a library that compiles has compiled prefill and step.
    """
    new = len(times) - 1
    return {
        "prompt_tokens": prompt_tokens,
        "new_tokens": new,
        "seconds_to_first_token": round(times[1] - times[0], 4) if new else None,
        "tokens_per_second": round((new - 2) / (times[-1] - times[2]), 2) if new > 2 else None,
    }


def _sentence(figures: dict[str, Any], where: str) -> str:
    first, rate = figures["seconds_to_first_token"], figures["tokens_per_second"]
    parts = [f"{where}: {figures['prompt_tokens']} prompt tokens"]
    parts += [] if first is None else [f"first token after {first:.2f} s"]
    parts += (
        [] if rate is None else [f"{figures['new_tokens']} tokens, from the second on {rate:.1f} tokens/s"]
    )
    return ", ".join(parts)
