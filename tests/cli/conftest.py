"""What the tests of commands share: ways to run them, models, a text, and a model trained on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyxp

from .running import SMALL, Call, run

WORDS = ("the", "old", "door", "of", "house", "was", "open", "and", "dog", "ran", "out", "it", "into", "rain")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(monkeypatch, capsys)


@pytest.fixture
def stories(test_data: Path) -> Path:
    return test_data / "stories260k"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model in a folder, without a tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tinyxp.save(tinyxp.init(tinyxp.Config()), folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = np.random.default_rng(0).choice(WORDS, 3000)
    path = tmp_path_factory.mktemp("corpus") / "rain.txt"
    path.write_text(". ".join(" ".join(drawn[i : i + 9]) for i in range(0, len(drawn), 9)))
    return path


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a trained model, and what the command printed."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("trained") / "model"
    done = run("train", corpus, "-o", folder, "--steps", 24, "--seed", 3, *SMALL)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    return folder, done.stdout
