"""What the tests of checkpoints share: small models at the scale of training, and files of GGUF."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyxp
from tinyxp.config import Config
from tinyxp.params import Params

from .files import MODELS, SIZES, draw


@pytest.fixture(scope="session")
def llama() -> Params:
    return draw(Config(**SIZES))


@pytest.fixture(scope="session")
def gpt2() -> Params:
    return draw(Config(**(SIZES | MODELS["gpt2"])))


@pytest.fixture
def folder(llama: Params, tmp_path: Path) -> Path:
    """A Hugging Face folder of the Llama model."""
    tinyxp.save(llama, tmp_path / "model")
    return tmp_path / "model"
