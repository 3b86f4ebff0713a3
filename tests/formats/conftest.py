"""What the tests of checkpoints share: small models at the scale of training, and files of GGUF."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tinyxp.config import Config
from tinyxp.params import Params
from tinyxp.shapes import parameter_shapes

from .files import MODELS

SIZES: dict[str, Any] = {
    "vocab_size": 37,
    "n_layers": 2,
    "d_model": 24,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 20,
    "max_seq_len": 32,
}


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    return SIZES


@pytest.fixture(scope="session")
def draw() -> Callable[..., Params]:
    """A model with matrices of std 0.3, and norms and biases off 1 and 0."""

    def drawn(config: Config, dtype: str = "float32") -> Params:
        rng = np.random.default_rng(1)
        return Params(
            {
                name: (rng.normal(0, 0.3, shape) + name.endswith("norm.weight")).astype(dtype)
                for name, shape in parameter_shapes(config).items()
            },
            config,
        )

    return drawn


@pytest.fixture(scope="session")
def llama(draw: Callable[..., Params]) -> Params:
    return draw(Config(**SIZES))


@pytest.fixture(scope="session")
def gpt2(draw: Callable[..., Params]) -> Params:
    return draw(Config(**(SIZES | MODELS["gpt2"])))


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
