"""A training run on disk: one file has everything that the run needs to resume."""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.checks import as_integer
from tinyxp.config import Config
from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, replacing
from tinyxp.formats import save
from tinyxp.params import Params
from tinyxp.train.loop import Report
from tinyxp.train.optimizer import State
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Namespace

NAME = "training.npz"
BAD_ARCHIVES = (zipfile.BadZipFile, zlib.error, tokenize.TokenError)
PARTS = ("params", "first", "second")
Entry = dict[str, Any]


class Run(NamedTuple):
    """A training run: its state, how it trains, what it has reported, and the caller's notes."""

    state: State
    recipe: Recipe
    history: list[Entry]  # step, loss, rate, norm, validation
    notes: Mapping[str, Any]


def as_entry(report: Report) -> Entry:
    """Return a report's numbers as an entry of the history."""
    return {name: getattr(report, name) for name in ("step", "loss", "rate", "norm", "validation")}


def save_run(run: Run, folder: Path) -> None:
    """Write the model as ``tinyxp.save`` does, then training.npz, the only file that a run resumes from.

    Each file is replaced completely or not at all, so the folder has a valid run at any moment.
    """
    params = run.state.params
    save(params, folder)
    facts = {
        "step": run.state.step,
        "config": asdict(params.config),
        "recipe": asdict(run.recipe),
        "history": run.history,
        "notes": dict(run.notes),
    }
    to_numpy = params.backend.to_numpy
    arrays: dict[str, Any] = {
        f"{part}.{name}": to_numpy(x)
        for part, values in zip(PARTS, run.state[:3], strict=True)
        for name, x in values.items()
    }
    with replacing(folder / NAME) as file:
        np.savez(file, run=np.array(json.dumps(facts)), **arrays)


def load_run(folder: Path, *, xp: Namespace, device: Any = None) -> Run:
    """Read the run in ``folder`` as arrays of ``xp``. Raise CheckpointError if it is missing or damaged."""
    backend, path = registry.backend(xp), folder / NAME
    if not path.is_file():
        raise CheckpointError(f"{folder}: has no {NAME}, so there is no run to resume")
    with name_in_errors(path):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                facts = json.loads(str(file["run"]))
                config = Config(**facts["config"])
                arrays, first, second = (
                    {
                        name.partition(".")[2]: backend.from_numpy(file[name], device=device)
                        for name in file.files
                        if name.startswith(f"{part}.")
                    }
                    for part in PARTS
                )
            recipe = Recipe(**facts["recipe"])
            params = Params(arrays, config)
            for moments in (first, second):
                Params(moments, config)  # checks names and shapes
            step = as_integer("step", facts["step"], low=0, high=recipe.steps + 1)
            history, notes = list(facts["history"]), dict(facts["notes"])
            for report in history:
                report["step"], report["loss"], report["rate"], report["norm"], report["validation"]
            return Run(State(params, first, second, step), recipe, history, notes)
        except (KeyError, TypeError, EOFError, RuntimeError, *BAD_ARCHIVES) as error:
            raise CheckpointError(f"is not a training run: {error}") from None
