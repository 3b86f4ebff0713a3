"""``tinyxp train``: from a text to a model that generates it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tinyxp.cli.status import Status
from tinyxp.cli.threads import limit_threads

if TYPE_CHECKING:
    from tinyxp.registry import Backend
    from tinyxp.train.session import Session
    from tinyxp.train.settings import Settings

FREE = ("corpus", "output", "resume", "backend", "threads")
"""The options that --resume allows; the others belong to the run."""


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
    help="The size of a vocabulary to train; or a tokenizer's folder, gpt2, cl100k_base or o200k_base, of "
    "which the ids in use are kept.",
)
@click.option("--lr", type=float, default=3e-3, show_default=True, help="Peak learning rate.")
@click.option("--warmup", type=int, help="Steps up to the peak.  [default: a tenth of the steps]")
@click.option("--batch", type=int, default=16, show_default=True, help="Windows of an update.")
@click.option("--micro-batch", type=int, help="Windows that are computed at a time, to save memory.")
@click.option("--dropout", type=float, default=0.0, show_default=True)
@click.option("--dtype", help="Of the computation, such as bfloat16; parameters stay in float32.")
@click.option("--held-out", type=float, default=0.1, show_default=True, help="Share of the text, at its end.")
@click.option("--every", type=int, help="Steps between evaluations.  [default: an eighth of the steps]")
@click.option("--prompt", help="What samples begin with.  [default: the beginning of the held-out text]")
@click.option("--untied", is_flag=True, help="A head of its own instead of the embedding's matrix.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--backend", help="A library with gradients.  [default: the first that is installed]")
@click.option("--threads", type=click.IntRange(min=1), help="How many threads the library may use.")
@click.option("--resume", is_flag=True, help="Continue the run in the folder from its last checkpoint.")
def train(corpus: str, output: Path, resume: bool, **options: Any) -> None:
    """Train a model on CORPUS, a text file or a known text ('tinyxp data list').

    The folder becomes a model that 'tinyxp generate' and transformers load. It also has what --resume needs,
    the losses (history.json) and a picture of them (curves.png). It is written at each evaluation.
    """
    limit_threads(options["threads"])
    from tinyxp.text.corpus import read_corpus
    from tinyxp.train import session

    if resume:
        context = click.get_current_context()
        for name in options:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in FREE:
                raise ValueError(f"--{name.replace('_', '-')} cannot change in a run that resumes (--resume)")
        text = read_corpus(corpus)
        backend = training_backend(options["backend"] or session.trained_on(output))
        run_to_end(session.resume(text, output, backend))
        return
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output}: is a file; the output must be a folder")
    if session.has_run(output):
        raise ValueError(f"{output}: has a training run; continue it with --resume, or name another folder")
    text = read_corpus(corpus)
    backend = training_backend(options["backend"])
    run_to_end(session.begin(text, output, backend, settings_of(options)))


def training_backend(name: str | None) -> Backend:
    """Return the backend to train on. Raise ValueError if it has no gradients, or none has."""
    from tinyxp import registry
    from tinyxp.engine import engine_backends
    from tinyxp.model import loss

    if name is not None:
        backend = registry.backend(name)
        backend.value_and_grad(loss)
        return backend
    for backend in engine_backends():
        if backend.has_gradients:
            return backend
    raise ValueError(
        "training needs a library with gradients, and none is installed: pip install 'tinyxp[torch]'"
    )


def settings_of(options: dict[str, Any]) -> Settings:
    """Return the settings that the command's options describe. Raise ValueError naming a wrong option."""
    from tinyxp.checks import as_integer, as_positive
    from tinyxp.train import Recipe
    from tinyxp.train.settings import Settings

    steps = as_integer("steps", options["steps"], low=1)
    recipe = Recipe(
        steps=steps,
        batch=options["batch"],
        peak=as_positive("lr", options["lr"]),
        warmup=steps // 10 if options["warmup"] is None else options["warmup"],
        micro_batch=options["micro_batch"],
        dropout=options["dropout"],
        dtype=options["dtype"],
        evaluate_every=max(steps // 8, 1) if options["every"] is None else options["every"],
        seed=options["seed"],
    )
    names = ("family", "width", "layers", "heads", "kv_heads", "context", "untied", "held_out", "prompt")
    return Settings(recipe=recipe, vocabulary=options["vocab"], **{name: options[name] for name in names})


def run_to_end(session: Session) -> None:
    """Run the session to its end; print a line and a sample at each evaluation."""
    from tinyxp.shapes import count_parameters
    from tinyxp.train.session import advance, has_run, sample

    recipe, config = session.run.recipe, session.run.state.params.config
    click.echo(
        f"{count_parameters(config)['total']:,} parameters, a vocabulary of {config.vocab_size:,}, "
        f"{len(session.train.ids):,} training and {len(session.held_out.ids):,} held-out windows"
    )
    status = Status(recipe.steps, recipe.batch * config.max_seq_len, session.run.state.step)
    last = session.run
    try:
        for report, checkpoint in advance(session):
            status.show(report)
            if checkpoint is not None:
                last = checkpoint
                status.clear()
                click.echo(status.line(report))
                click.echo(f"step {report.step}, a sample: {printable(sample(last, session.tokenizer))}")
    except KeyboardInterrupt:
        status.clear()
        saved = has_run(session.folder)
        advice = "--resume continues from its last checkpoint" if saved else "there is no checkpoint yet"
        click.echo(f"tinyxp: stopped; {advice}", err=True)
        raise
    status.clear()
    report_end(last.history, session.folder)


def report_end(history: Iterable[dict[str, Any]], folder: Path) -> None:
    """Print the mean of the last losses and where the model is."""
    tail = [entry["loss"] for entry in history if entry["loss"] is not None][-25:]
    if tail:
        click.echo(f"mean of the last {len(tail)} training losses: {sum(tail) / len(tail):.4f}")
    if find_spec("matplotlib") is None:
        click.echo("tinyxp: no curves.png without matplotlib: pip install 'tinyxp[plot]'", err=True)
    click.echo(f"wrote {folder}; to generate text: tinyxp generate PROMPT -m {folder}", err=True)


def printable(text: str) -> str:
    """Return the text with control characters, which a terminal would obey, replaced."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
