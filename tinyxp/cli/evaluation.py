"""``tinyxp evaluate``: how well a model predicts a text."""

from __future__ import annotations

import json
import math
import sys

import click

from tinyxp.cli.progress import loading
from tinyxp.cli.threads import limit_threads

LARGEST = math.log(sys.float_info.max)
"""Nats above which the perplexity is not a finite float."""


@click.command()
@click.argument("model")
@click.argument("corpus")
@click.option("--tokenizer", help="The tokenizer's path or name.  [default: the model's]")
@click.option("--backend", default="numpy", show_default=True, help="The array library.")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--dtype", help="float64, float32, bfloat16 or float16.  [default: float32]")
@click.option("--context", type=int, help="Tokens of a window.  [default: the model's, up to 1,024]")
@click.option("--held-out", type=float, help="Evaluate only this share at the end of the text, such as 0.1.")
@click.option("--batch", type=int, default=16, show_default=True, help="Windows at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def evaluate(
    model: str,
    corpus: str,
    tokenizer: str | None,
    backend: str,
    threads: int | None,
    dtype: str | None,
    context: int | None,
    held_out: float | None,
    batch: int,
    as_json: bool,
) -> None:
    """Measure how well MODEL predicts CORPUS, a text file or a known text ('tinyxp data list').

    The text is cut into windows that do not overlap. Each token of a window except its first is predicted
    from those before it in the window, and so is the token after the window. A token costs -ln of its
    probability in nats. Perplexity is e to the power of their mean; bits per byte are their sum / ln 2,
    divided by the bytes of the tokens.
    """
    limit_threads(threads)
    from tinyxp import registry
    from tinyxp.formats import load, load_config
    from tinyxp.text.corpus import read_corpus
    from tinyxp.text.tokenizer import load_tokenizer
    from tinyxp.text.windows import cut_windows, split_stream
    from tinyxp.train import evaluate as mean_loss

    adapter = registry.backend(backend)
    adapter.dtype(dtype or "float32")
    text = read_corpus(corpus)
    if tokenizer is None:
        load_config(model)  # so that a missing model is not reported as a missing tokenizer
    vocabulary = load_tokenizer(tokenizer or model)
    ids = vocabulary.encode(text)
    if held_out is not None:
        ids = list(split_stream(ids, held_out)[1])
    params = loading(lambda show: load(model, xp=adapter.xp, dtype=dtype or "float32", progress=show))
    length = min(params.config.max_seq_len, 1024) if context is None else context
    windows = cut_windows(ids, length)
    nats = mean_loss(params, windows, batch=batch)
    if not math.isfinite(nats):
        raise ValueError(f"the loss of {model} is {nats}; its numbers are not finite")
    size = sum(len(vocabulary.token_bytes(index)) for index in windows.targets.ravel().tolist())
    results = {
        "nats_per_token": nats,
        "perplexity": math.exp(min(nats, LARGEST)),
        "bits_per_byte": nats * windows.targets.size / math.log(2.0) / size,
        "tokens": windows.targets.size,
        "bytes": size,
        "windows": len(windows.ids),
    }
    if as_json:
        click.echo(json.dumps(results))
        return
    click.echo(
        f"{nats:.4f} nats per token, perplexity {results['perplexity']:.2f}, "
        f"{results['bits_per_byte']:.4f} bits per byte "
        f"({len(windows.ids):,} windows of {length} tokens, {size:,} bytes)"
    )
