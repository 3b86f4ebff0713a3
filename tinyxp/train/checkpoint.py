"""A run on disk: everything that it needs to go on, in one file that is replaced whole."""

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
    """A training run: where it is, what it is made by, what it has reported, and notes of the caller's."""

    state: State
    recipe: Recipe
    history: list[Entry]  # step, loss, rate, norm, validation
    notes: Mapping[str, Any]


def entry(report: Report) -> Entry:
    """A report's numbers, as the history keeps them."""
    return {name: getattr(report, name) for name in ("step", "loss", "rate", "norm", "validation")}


def save_run(run: Run, folder: Path) -> None:
    """Writes the model as ``tinyxp.save`` does, then training.npz, by which alone a run goes on.

    Each file is there whole or as it was before: stopped at any point, the folder holds a run.
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
        for part, found in zip(PARTS, run.state[:3], strict=True)
        for name, x in found.items()
    }
    with replacing(folder / NAME) as file:
        np.savez(file, run=np.array(json.dumps(facts)), **arrays)


def load_run(folder: Path, *, xp: Namespace, device: Any = None) -> Run:
    """The run in ``folder``, its arrays those of ``xp``. CheckpointError for one that is not there or bad."""
    target, path = registry.backend(xp), folder / NAME
    if not path.is_file():
        raise CheckpointError(f"{folder}: has no {NAME}, so there is no run to go on with")
    with name_in_errors(path):
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                facts = json.loads(str(file["run"]))
                config = Config(**facts["config"])
                params, first, second = (
                    {
                        name.partition(".")[2]: target.from_numpy(file[name], device=device)
                        for name in file.files
                        if name.startswith(f"{part}.")
                    }
                    for part in PARTS
                )
            recipe = Recipe(**facts["recipe"])
            found = Params(params, config)
            for moments in (first, second):
                Params(moments, config)  # the same names and shapes
            step = as_integer("step", facts["step"], low=0, high=recipe.steps + 1)
            history, notes = list(facts["history"]), dict(facts["notes"])
            for report in history:
                report["step"], report["loss"], report["rate"], report["norm"], report["validation"]
            return Run(State(found, first, second, step), recipe, history, notes)
        except (KeyError, TypeError, EOFError, RuntimeError, *BAD_ARCHIVES) as error:
            raise CheckpointError(f"is not a training run: {error}") from None
