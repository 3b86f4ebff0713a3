"""``tinyxp generate``: a prompt goes in, text streams out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from tinyxp.cli.progress import loading
from tinyxp.cli.threads import limit_threads


@click.command()
@click.argument("prompt")
@click.option(
    "-m",
    "--model",
    help="A Hugging Face folder or hub id, .gguf, llama2.c .bin or .npz.  [default: holmes, which comes with "
    "tinyxp]",
)
@click.option("--tokenizer", help="Where the tokenizer is, if not with the model.")
@click.option(
    "--backend", default="numpy", show_default=True, help="The array library: see 'tinyxp backends'."
)
@click.option("--device", help="Where the library computes, such as cuda:0.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--dtype", help="float64, float32, bfloat16, float16 or int8; as stored, if not given.")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=0), default=100, show_default=True)
@click.option(
    "--temperature",
    type=float,
    help="0 takes the likeliest token.  [default: the model's generation_config.json, else 0]",
)
@click.option("--top-k", type=int, help="Draw from the k likeliest tokens only.")
@click.option("--top-p", type=float, help="Draw from the fewest tokens whose mass reaches p only.")
@click.option("--seed", type=int, help="The same seed gives the same text on every backend.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of the text.")
@click.option("--slide", is_flag=True, help="Go on beyond the model's context with a sliding window.")
@click.option("--no-cache", is_flag=True, help="Run the whole sequence again for each token.")
@click.option("--stats", is_flag=True, help="Print times and tokens/s to standard error.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of text.")
def generate(
    prompt: str,
    model: str | None,
    tokenizer: str | None,
    backend: str,
    device: str | None,
    threads: int | None,
    dtype: str | None,
    max_new_tokens: int,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    ignore_eos: bool,
    slide: bool,
    no_cache: bool,
    stats: bool,
    as_json: bool,
) -> None:
    """Continue PROMPT ('-' reads it from standard input).

    The continuation goes to standard output as it is written, and nothing else does when that is piped.
    """
    limit_threads(threads)
    import tinyxp
    from tinyxp.dtypes import dtype_name
    from tinyxp.engine import engine_of
    from tinyxp.formats import load_config
    from tinyxp.formats.included import FIRST, included

    if prompt == "-":
        if sys.stdin is None:
            raise ValueError("PROMPT is '-', but standard input is closed")
        prompt = sys.stdin.read()
    if model is None:
        model, dtype = str(included(FIRST)), dtype or "float32"  # it is kept in half of that
    if temperature is None:
        temperature = temperature_of(Path(model))
    adapter, eight_bits = tinyxp.backend(backend), dtype == "int8"
    engine = engine_of(adapter)
    if eight_bits:  # these checks before the model, which may take long
        engine.check_int8()
        dtype = "float32"
    elif dtype is not None:
        adapter.dtype(dtype)
    adapter.device(device)
    if tokenizer is None:
        load_config(model)  # so that a model that is not there is not reported as a missing tokenizer
    text = tinyxp.load_tokenizer(tokenizer or model)
    prompt_ids = text.encode(prompt)
    if not prompt_ids:
        raise ValueError("PROMPT is empty, and this model's tokenizer puts no token before a text")
    params = loading(
        lambda show: tinyxp.load(model, xp=adapter.xp, dtype=dtype, device=device, progress=show)
    )
    params = engine.quantize(params) if eight_bits else engine.prepare(params)
    adapter.synchronize(params["embed.weight"])
    computed = "int8" if eight_bits else dtype_name(params.dtype)

    longest, reach = params.config.max_seq_len, len(prompt_ids) + max_new_tokens
    if params.config.position == "rope" and reach > longest and not slide:
        click.echo(
            f"tinyxp: {len(prompt_ids)} prompt and {max_new_tokens} new tokens may exceed the {longest} "
            "that this model was trained on; --slide keeps to them",
            err=True,
        )
    writer = _Writer(prompt, quiet=as_json)
    times = [time.perf_counter()]
    ids: list[int] = []
    decoder = text.stream()
    for known in prompt_ids:  # so that the first new token is spelled as it is inside a text
        decoder.push(known)
    interrupted = False
    try:
        steps = tinyxp.stream(
            params,
            [prompt_ids],
            max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            eos=None if ignore_eos else [i for i in text.eos_ids if i < params.config.vocab_size],
            cache=not no_cache,
            overflow="slide" if slide else "raise",
            vocab_size=text.vocab_size,
        )
        for step in steps:
            ids.append(int(step[0]))
            times.append(time.perf_counter())
            if ignore_eos or ids[-1] not in text.eos_ids:
                writer.write(decoder.push(ids[-1]))
    except KeyboardInterrupt:
        interrupted = True
    writer.write(decoder.flush())
    writer.close()
    figures = _figures(len(prompt_ids), times)
    if as_json:
        record: dict[str, Any] = {
            "prompt": prompt,
            "text": writer.text,
            "prompt_ids": prompt_ids,
            "ids": ids,
            "backend": adapter.name,
            "dtype": computed,
        }
        click.echo(json.dumps(record | figures))
    if stats:
        click.echo(_sentence(figures, f"{adapter.name} {computed}"), err=True)
    if interrupted:
        raise KeyboardInterrupt


def temperature_of(model: Path) -> float:
    """What the generation_config.json of a model's folder draws with; 0 where it does not draw."""
    from tinyxp.files import read_json

    path = model / "generation_config.json"
    if not path.is_file():
        return 0.0
    found = read_json(path)
    return float(found.get("temperature") or 1.0) if found.get("do_sample") is True else 0.0


class _Writer:
    """Writes text to standard output as it comes; on a terminal the prompt stands before it."""

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
    """times: the start, then when each new token was known.

    The rate is that from the second token on: by then a library that compiles has compiled prefill and step.
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
