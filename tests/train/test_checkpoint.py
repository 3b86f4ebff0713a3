"""Runs on disk: what is written is read again, and a damaged file is one error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.reference import LLAMA_CONFIG, drawn
from tinyxp.errors import CheckpointError
from tinyxp.params import Params
from tinyxp.train import Recipe, State
from tinyxp.train.checkpoint import Run, as_entry, load_run, save_run
from tinyxp.train.loop import Report

from .runs import assert_same

RECIPE = Recipe(steps=9, betas=(0.5, 0.75), dtype="float32", micro_batch=2)


def run_of(params: Params) -> Run:
    first, second = ({name: factor * x for name, x in params.items()} for factor in (2.0, 3.0))
    state = State(params, first, second, 4)
    history = [as_entry(Report(4, 1.5, 1e-3, 0.5, None, state))]
    return Run(state, RECIPE, history, {"text": "é"})


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Run]:
    run = run_of(drawn(LLAMA_CONFIG))
    save_run(run, tmp_path)
    return tmp_path, run


def test_a_run_is_read_as_it_was_written(saved: tuple[Path, Run]) -> None:
    folder, run = saved
    read = load_run(folder, xp=np)
    assert read[1:] == run[1:]
    assert read.state.step == 4
    for ours, theirs in zip(read.state[:3], run.state[:3], strict=True):
        assert_same(ours, theirs)


def test_an_entry_has_the_numbers_of_its_report() -> None:
    (entry,) = run_of(drawn(LLAMA_CONFIG)).history
    assert entry == {"step": 4, "loss": 1.5, "rate": 1e-3, "norm": 0.5, "validation": None}


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no training.npz, so there is no run to resume"):
        load_run(tmp_path, xp=np)


@pytest.mark.parametrize("at", [4, 30, 200, 1000, -60, -20, -10])
def test_a_damaged_run_is_one_error_or_a_run(saved: tuple[Path, Run], at: int) -> None:
    path = saved[0] / "training.npz"
    data = bytearray(path.read_bytes())
    for value in (0x00, 0xFF, data[at] ^ 1, data[at] ^ 64):
        data[at] = value
        path.write_bytes(data)
        with suppress(CheckpointError):  # and no other error
            assert load_run(saved[0], xp=np).state.step == 4


def test_half_a_file_is_an_error_that_names_it(saved: tuple[Path, Run]) -> None:
    path = saved[0] / "training.npz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match="training.npz"):
        load_run(saved[0], xp=np)


@pytest.mark.parametrize("step", [-1, 10, 1.5])
def test_a_step_outside_the_recipe_is_an_error(tmp_path: Path, step: float) -> None:
    run = run_of(drawn(LLAMA_CONFIG))
    save_run(run._replace(state=run.state._replace(step=step)), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="step is"):
        load_run(tmp_path, xp=np)
