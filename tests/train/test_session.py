"""Sessions: what a new run writes, what is checked first, and that an interrupted run resumes bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp.errors import CheckpointError
from tinyxp.train import Recipe
from tinyxp.train.session import Session, advance, begin, has_run, resume, sample, trained_on
from tinyxp.train.settings import Settings

from .runs import assert_same

pytest.importorskip("torch")

WORDS = ("the", "old", "door", "of", "house", "was", "open", "and", "dog", "ran", "out", "it", "into", "rain")
TEXT = " ".join(np.random.default_rng(0).choice(WORDS, 900))
RECIPE = Recipe(steps=4, batch=4, warmup=1, evaluate_every=2)


def settings(**more: Any) -> Settings:
    return Settings(
        **{"recipe": RECIPE, "width": 16, "heads": 2, "layers": 1, "context": 16, "vocabulary": "270"} | more
    )


def start(folder: Path, **more: Any) -> Session:
    return begin(TEXT, folder, tinyxp.backend("torch"), settings(**more))


def test_a_new_run_has_its_vocabulary_in_the_folder_and_no_checkpoint(tmp_path: Path) -> None:
    session = start(tmp_path / "model")
    assert session.run.state.params.config.vocab_size == session.tokenizer.vocab_size == 270
    assert tinyxp.load_tokenizer(tmp_path / "model").encode("the dog") == session.tokenizer.encode("the dog")
    assert session.run.notes["prompt"] == session.held_out.ids[0, :8].tolist()
    assert session.run.history == []
    assert not has_run(tmp_path / "model")


def test_the_vocabulary_has_not_seen_the_held_out_text(tmp_path: Path) -> None:
    text = TEXT + " zebra" * 99
    share = 99 * len(" zebra") / len(text)
    session = begin(
        text, tmp_path, tinyxp.backend("torch"), settings(held_out=share + 0.01, vocabulary="400")
    )
    assert len(session.tokenizer.encode(" zebra")) > 3
    assert len(session.tokenizer.encode(" house")) == 1


def test_each_evaluation_saves_a_checkpoint_with_the_history_so_far(tmp_path: Path) -> None:
    steps = []
    for report, checkpoint in advance(start(tmp_path)):
        assert (checkpoint is None) == (report.validation is None)
        if checkpoint is not None:
            steps.append(report.step)
            history = json.loads((tmp_path / "history.json").read_text())
            assert [entry["step"] for entry in history] == list(range(report.step + 1))
            assert history == checkpoint.history
            assert_same(tinyxp.load(tmp_path), report.params)
    assert steps == [0, 2, 4]
    assert has_run(tmp_path)
    assert trained_on(tmp_path) == "torch"


@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_an_interrupted_run_resumes_and_ends_as_the_whole_one(tmp_path: Path, stop: int) -> None:
    whole = [report for report, _ in advance(start(tmp_path / "whole"))]
    for report, _ in advance(start(tmp_path / "parts")):
        if report.step == stop:
            break
    session = resume(TEXT, tmp_path / "parts", tinyxp.backend("torch"))
    assert session.run.state.step == 2 * (stop // 2)
    rest = [report for report, _ in advance(session)]
    assert rest[-1][:5] == whole[-1][:5]
    assert_same(rest[-1].params, whole[-1].params)
    for name in ("history.json", "model.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    for _ in advance(start(tmp_path)):
        pass
    assert list(advance(resume(TEXT, tmp_path, tinyxp.backend("torch")))) == []


def test_a_sample_is_the_prompt_and_what_follows(tmp_path: Path) -> None:
    session = start(tmp_path, prompt="the old dog")
    text = sample(session.run, session.tokenizer)
    assert text.startswith("the old dog")
    assert text == sample(session.run, session.tokenizer)
    assert len(text) > len("the old dog")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"kv_heads": 1}, "no class of transformers"),
        ({"recipe": Recipe(steps=1, dtype="float16"), "heads": 3}, "n_heads, 3, must divide it"),
        ({"vocabulary": "100"}, "vocab_size is 100"),
        ({"vocabulary": "nowhere"}, "nowhere: no such file or folder"),
        ({"vocabulary": "²"}, "no such file or folder"),
        ({"context": 100_000}, "the corpus is too short: in its training part, ids has"),
        ({"held_out": 0.0005}, "the corpus is too short: in its held-out part, ids has"),
        ({"prompt": ""}, "prompt is empty"),
    ],
)
def test_what_does_not_fit_is_named_and_writes_nothing(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "model", **fields)
    assert not (tmp_path / "model").exists()


def test_a_run_resumes_on_its_own_text_only(tmp_path: Path) -> None:
    for _ in advance(start(tmp_path)):
        break
    with pytest.raises(ValueError, match="is not the text that the run in"):
        resume(TEXT + " ", tmp_path, tinyxp.backend("torch"))


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no training.npz, so there is no run to resume"):
        resume(TEXT, tmp_path, tinyxp.backend("torch"))
