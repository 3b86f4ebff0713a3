"""A training run with what surrounds it: text, vocabulary, windows, and a folder with its checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyxp.files import replacing
from tinyxp.generation import generate
from tinyxp.initialization import init
from tinyxp.registry import Backend
from tinyxp.text.base import Tokenizer
from tinyxp.text.tokenizer import load_tokenizer
from tinyxp.text.windows import Windows, cut_windows, split_stream
from tinyxp.train.checkpoint import NAME, Run, as_entry, load_run, save_run
from tinyxp.train.curves import draw
from tinyxp.train.loop import Report, fit
from tinyxp.train.optimizer import initial_state
from tinyxp.train.settings import Settings
from tinyxp.train.vocabulary import reduce_vocabulary, train_vocabulary


class Session(NamedTuple):
    """A run, its tokenizer, its windows, and the folder that it is saved in."""

    run: Run
    tokenizer: Tokenizer
    train: Windows
    held_out: Windows
    folder: Path


class Progress(NamedTuple):
    """A report of the run, and the checkpoint that was saved with it, if one was due."""

    report: Report
    checkpoint: Run | None


def has_run(folder: Path) -> bool:
    """Whether the folder has a run to resume."""
    return (folder / NAME).is_file()


def begin(text: str, folder: Path, backend: Backend, settings: Settings) -> Session:
    """Return a run before its first step. Its vocabulary is built and written into the folder.

    Raise ValueError naming the field, before anything is built, for settings that do not fit.
    """
    recipe = settings.recipe
    settings.config(vocab_size=1).to_hf()  # raises for what transformers cannot load
    if recipe.dtype is not None:
        backend.dtype(recipe.dtype)
    trained = len(split_stream(range(len(text)), settings.held_out)[0])
    if settings.vocabulary.lstrip("-").isdecimal():
        vocabulary = train_vocabulary(text[:trained], int(settings.vocabulary))
    else:
        vocabulary = reduce_vocabulary(settings.vocabulary, text)
    tokenizer = vocabulary.tokenizer
    config = settings.config(tokenizer.vocab_size)
    train, held_out = _cut(tokenizer, text, config.max_seq_len, settings.held_out)
    prompt = held_out.ids[0, :8].tolist() if settings.prompt is None else tokenizer.encode(settings.prompt)
    if not prompt:
        raise ValueError("prompt is empty, and this tokenizer puts no token before a text")
    vocabulary.write(folder)
    notes = {
        "backend": backend.name,
        "sha256": _digest(text),
        "held_out": settings.held_out,
        "prompt": prompt,
    }
    state = initial_state(init(config, seed=recipe.seed, xp=backend.xp))
    return Session(Run(state, recipe, [], notes), tokenizer, train, held_out, folder)


def trained_on(folder: Path) -> str:
    """Return the name of the backend that the run in ``folder`` began on. Errors as for ``load_run``."""
    return str(load_run(folder, xp=np).notes["backend"])


def resume(text: str, folder: Path, backend: Backend) -> Session:
    """Return the run in ``folder`` at its last checkpoint, on ``backend``.

    Raise CheckpointError if it is missing or damaged, and ValueError if it was trained on another text.
    """
    run = load_run(folder, xp=backend.xp)
    if run.notes["sha256"] != _digest(text):
        raise ValueError(f"the corpus is not the text that the run in {folder} is trained on")
    tokenizer = load_tokenizer(folder)
    train, held_out = _cut(tokenizer, text, run.state.params.config.max_seq_len, run.notes["held_out"])
    return Session(run, tokenizer, train, held_out, folder)


def advance(session: Session) -> Iterator[Progress]:
    """Train to the end of the recipe; yield each report. A checkpoint is saved at each evaluation."""
    run = session.run
    start = run.state if run.state.step else run.state.params
    history = [*run.history]
    for report in fit(start, session.train, session.held_out, run.recipe):
        if report.step or not history:  # a run that resumes from its start has step 0 already
            history.append(as_entry(report))
        checkpoint = None
        if report.validation is not None:
            checkpoint = run._replace(state=report.state, history=[*history])
            save_checkpoint(checkpoint, session.folder)
        yield Progress(report, checkpoint)


def save_checkpoint(run: Run, folder: Path) -> None:
    """Write the run, its history as history.json, and with matplotlib a picture of it as curves.png."""
    save_run(run, folder)
    with replacing(folder / "history.json") as file:
        file.write(json.dumps(run.history, indent=1).encode())
    if find_spec("matplotlib") is not None:
        draw(run.history, folder / "curves.png")


def sample(run: Run, tokenizer: Tokenizer) -> str:
    """Return the run's prompt and 40 tokens after it, drawn at temperature 0.8."""
    params, prompt = run.state.params, run.notes["prompt"]
    ids = generate(params, [prompt], 40, temperature=0.8, seed=run.recipe.seed, overflow="slide")
    stream = tokenizer.stream()
    pieces = [stream.push(index) for index in [*prompt, *params.backend.to_numpy(ids)[0].tolist()]]
    return "".join([*pieces, stream.flush()])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cut(tokenizer: Tokenizer, text: str, length: int, held_out: float) -> tuple[Windows, Windows]:
    """The windows to train on, and those held out."""
    train, rest = split_stream(tokenizer.encode(text), held_out)
    return _cut_part("training", train, length), _cut_part("held-out", rest, length)


def _cut_part(name: str, ids: np.ndarray, length: int) -> Windows:
    try:
        return cut_windows(ids, length)
    except ValueError as error:
        raise ValueError(f"the corpus is too short: in its {name} part, {error}") from None
