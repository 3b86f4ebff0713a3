"""``tinyxp train``: from a text to a model that writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tinyxp.cli.status import Status
from tinyxp.cli.threads import limit_threads

if TYPE_CHECKING:
    from tinyxp.config import Config
    from tinyxp.registry import Backend
    from tinyxp.text.base import Tokenizer
    from tinyxp.text.windows import Windows
    from tinyxp.train.checkpoint import Run

KEPT = ("corpus", "output", "resume", "backend", "threads")
"""What may be said beside --resume; all else is the run's own."""


@click.command()
@click.argument("corpus")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The model's folder.")
@click.option("--steps", type=int, default=200, show_default=True, help="Updates.")
@click.option("--family", type=click.Choice(["gpt2", "llama"]), default="gpt2", show_default=True)
@click.option("--width", type=int, default=128, show_default=True)
@click.option("--layers", type=int, default=4, show_default=True)
@click.option("--heads", type=int, default=4, show_default=True)
@click.option("--kv-heads", type=int, help="Key/value heads.  [default: as many as heads]")
@click.option("--context", type=int, default=128, show_default=True, help="Tokens of a window.")
@click.option(
    "--vocab",
    default="4096",
    show_default=True,
    help="Tokens of a vocabulary of the run's own; or a tokenizer's folder, or gpt2, cl100k_base or "
    "o200k_base, of which the ids in use are kept.",
)
@click.option("--lr", type=float, default=3e-3, show_default=True, help="Peak learning rate.")
@click.option("--warmup", type=int, help="Steps up to it.  [default: a tenth of the steps]")
@click.option("--batch", type=int, default=16, show_default=True, help="Windows of an update.")
@click.option("--micro-batch", type=int, help="Windows at a time, to save memory.")
@click.option("--dropout", type=float, default=0.0, show_default=True)
@click.option("--dtype", help="bfloat16 computes in it; parameters stay in float32.")
@click.option("--held-out", type=float, default=0.1, show_default=True, help="Share of the text's end.")
@click.option("--every", type=int, help="Steps between evaluations.  [default: an eighth of the steps]")
@click.option("--prompt", help="What samples begin with.  [default: the beginning of the held-out text]")
@click.option("--untied", is_flag=True, help="A head of its own, not the embedding's matrix.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--backend", help="torch, jax or another with gradients.  [default: the first installed]")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder, from its last checkpoint.")
def train(corpus: str, output: Path, resume: bool, **given: Any) -> None:
    """Train a model on CORPUS, a text file or a known text ('tinyxp data list').

    The folder becomes a model that 'tinyxp generate' and transformers load, with what --resume needs, the
    losses (history.json) and a picture of them (curves.png). It is written at each evaluation.
    """
    limit_threads(given["threads"])
    from tinyxp.text.corpus import read_corpus
    from tinyxp.train.checkpoint import NAME, load_run

    if resume:
        context = click.get_current_context()
        for name in given:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in KEPT:
                raise ValueError(f"--{name.replace('_', '-')} cannot change in a run that goes on (--resume)")
    elif output.exists() and not output.is_dir():
        raise ValueError(f"{output}: is a file; a folder is to be written there")
    elif (output / NAME).exists():
        raise ValueError(f"{output}: holds a training run; go on with --resume, or name another folder")
    text = read_corpus(corpus)
    if resume:
        import numpy as np

        from tinyxp.text.tokenizer import load_tokenizer

        notes = load_run(output, xp=np).notes
        backend = gradients(given["backend"] or notes["backend"])
        run = load_run(output, xp=backend.xp)
        if notes["sha256"] != digest(text):
            raise ValueError(f"{corpus}: is not the text that the run in {output} is trained on")
        tokenizer = load_tokenizer(output)
    else:
        backend = gradients(given["backend"])
        tokenizer, run = started(text, output, backend, given)
    parts = windows(tokenizer, text, run.state.params.config.max_seq_len, run.notes["held_out"])
    go(run, *parts, tokenizer, output)


def gradients(name: str | None) -> Backend:
    """The backend to train on; an error that says what to install where it has no gradients."""
    import tinyxp

    if name is None:
        installed = [name for name in ("torch", "jax") if find_spec(name) is not None]
        name = installed[0] if installed else "numpy"
    backend = tinyxp.backend(name)
    backend.value_and_grad(tinyxp.loss)
    return backend


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def started(text: str, output: Path, backend: Backend, given: dict[str, Any]) -> tuple[Tokenizer, Run]:
    """A run before its first step, and its tokenizer, which stands in the folder from here on."""
    import tinyxp
    from tinyxp.checks import as_integer, as_positive
    from tinyxp.text.windows import split_stream
    from tinyxp.train import Recipe
    from tinyxp.train.checkpoint import Run
    from tinyxp.train.optimizer import initial
    from tinyxp.train.vocabulary import known_vocabulary, own_vocabulary

    steps = as_integer("steps", given["steps"], low=1)
    recipe = Recipe(
        steps=steps,
        batch=given["batch"],
        peak=as_positive("lr", given["lr"]),
        warmup=steps // 10 if given["warmup"] is None else given["warmup"],
        micro_batch=given["micro_batch"],
        dropout=given["dropout"],
        dtype=given["dtype"],
        evaluate_every=max(steps // 8, 1) if given["every"] is None else given["every"],
        seed=given["seed"],
    )
    # What is wrong with these is said before a vocabulary is made.
    model_config(given, vocab_size=1).to_hf()
    if recipe.dtype is not None:
        backend.dtype(recipe.dtype)
    kept = len(split_stream(range(len(text)), given["held_out"])[0])
    vocab = given["vocab"]
    own = vocab.lstrip("-").isdecimal()
    vocabulary = own_vocabulary(text[:kept], int(vocab)) if own else known_vocabulary(vocab, text)
    tokenizer = vocabulary.tokenizer
    config = model_config(given, vocab_size=tokenizer.vocab_size)
    _, held_out = windows(tokenizer, text, config.max_seq_len, given["held_out"])
    prompt = held_out.ids[0, :8].tolist() if given["prompt"] is None else tokenizer.encode(given["prompt"])
    if not prompt:
        raise ValueError("prompt is empty, and this tokenizer puts no token before a text")
    vocabulary.write(output)
    notes = {
        "backend": backend.name,
        "sha256": digest(text),
        "held_out": given["held_out"],
        "prompt": prompt,
    }
    params = tinyxp.init(config, seed=recipe.seed, xp=backend.xp)
    return tokenizer, Run(initial(params), recipe, [], notes)


def model_config(given: dict[str, Any], vocab_size: int) -> Config:
    """The family's config: MLPs of 4 d, or with a gate of 8/3 d, rounded up to a multiple of 64."""
    from tinyxp.checks import as_integer
    from tinyxp.config import GPT2, Config

    d = as_integer("width", given["width"], low=1)
    heads = as_integer("heads", given["heads"], low=1)
    gated = given["family"] == "llama"
    family: dict[str, Any] = {} if gated else GPT2
    return Config(
        **family
        | {
            "vocab_size": vocab_size,
            "n_layers": as_integer("layers", given["layers"], low=1),
            "d_model": d,
            "n_heads": heads,
            "n_kv_heads": heads if given["kv_heads"] is None else given["kv_heads"],
            "d_ff": -(-8 * d // (3 * 64)) * 64 if gated else 4 * d,
            "max_seq_len": as_integer("context", given["context"], low=1),
            "tie_embeddings": not given["untied"],
        }
    )


def windows(tokenizer: Tokenizer, text: str, length: int, held_out: float) -> tuple[Windows, Windows]:
    """To train on, and held out."""
    from tinyxp.text.windows import cut_windows, split_stream

    parts = split_stream(tokenizer.encode(text), held_out)
    found = []
    for name, ids in zip(("training", "held-out"), parts, strict=True):
        try:
            found.append(cut_windows(ids, length))
        except ValueError as error:
            raise ValueError(f"the corpus is too short: in its {name} part, {error}") from None
    return found[0], found[1]


def go(run: Run, trained: Windows, held_out: Windows, tokenizer: Tokenizer, output: Path) -> None:
    """The run to its end, with a line, a sample and a checkpoint at each evaluation."""
    from tinyxp.shapes import count_parameters
    from tinyxp.train import fit
    from tinyxp.train.checkpoint import NAME, entry

    recipe, params = run.recipe, run.state.params
    counts = f"{len(trained.ids):,} training and {len(held_out.ids):,} held-out windows"
    total = count_parameters(params.config)["total"]
    click.echo(f"{total:,} parameters, a vocabulary of {params.config.vocab_size:,}, {counts}")
    begun = run.state.step
    status = Status(recipe.steps, recipe.batch * params.config.max_seq_len, begun)
    start = run.state if begun else params
    try:
        for report in fit(start, trained, held_out, recipe):
            if report.step or not run.history:  # a run that goes on from its start has that already
                run.history.append(entry(report))
            status.show(report)
            if report.validation is None:
                continue
            run = run._replace(state=report.state)
            status.clear()
            click.echo(status.line(report))
            checkpoint(run, output)
            sample = "".join(written(run, tokenizer))
            click.echo(f"step {report.step}, a sample: {printable(sample)}")
    except KeyboardInterrupt:
        status.clear()
        kept = (output / NAME).is_file()
        left = "--resume goes on from its last checkpoint" if kept else "there is no checkpoint yet"
        click.echo(f"tinyxp: stopped; {left}", err=True)
        raise
    status.clear()
    tail = [e["loss"] for e in run.history if e["loss"] is not None][-25:]
    if tail:
        click.echo(f"mean of the last {len(tail)} training losses: {sum(tail) / len(tail):.4f}")
    click.echo(f"wrote {output}; see it write: tinyxp generate PROMPT -m {output}", err=True)


def checkpoint(run: Run, output: Path) -> None:
    from tinyxp.files import replacing
    from tinyxp.train.checkpoint import save_run
    from tinyxp.train.curves import draw

    save_run(run, output)
    with replacing(output / "history.json") as file:
        file.write(json.dumps(run.history, indent=1).encode())
    if find_spec("matplotlib") is not None:
        draw(run.history, output / "curves.png")
    elif run.state.step == run.recipe.steps:
        click.echo("tinyxp: no curves.png without matplotlib: pip install 'tinyxp[plot]'", err=True)


def printable(text: str) -> str:
    """The text, but for characters that a terminal obeys."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def written(run: Run, tokenizer: Tokenizer) -> Iterator[str]:
    """The prompt and 40 tokens after it, drawn at temperature 0.8."""
    import tinyxp

    params, prompt = run.state.params, run.notes["prompt"]
    stream = tokenizer.stream()
    ids = tinyxp.generate(params, [prompt], 40, temperature=0.8, seed=run.recipe.seed, overflow="slide")
    for index in [*prompt, *params.backend.to_numpy(ids)[0].tolist()]:
        yield stream.push(index)
    yield stream.flush()
