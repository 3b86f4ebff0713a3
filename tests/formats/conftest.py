"""What the tests of checkpoints share: small models at the scale of training, and files of GGUF."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
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


@pytest.fixture(scope="session")
def write_gguf() -> Callable[..., Path]:
    """write(path, architecture, metadata, tensors); a tensor is an array, or its blocks and their type."""

    def write(path: Path, architecture: str, metadata: dict[str, Any], tensors: dict[str, Any]) -> Path:
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            name = key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}"
            if isinstance(value, str):
                writer.add_string(name, value)
            elif isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            else:
                writer.add_array(name, value)
        for name, tensor in tensors.items():
            if isinstance(tensor, tuple):
                writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
            else:
                writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write
