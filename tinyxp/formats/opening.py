"""Finding a model by its path or name, opening it, and describing it; no weight is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tinyxp.config import Config
from tinyxp.errors import CheckpointError
from tinyxp.files import PICKLES, exists, pickle_error
from tinyxp.formats import hub
from tinyxp.formats.bundled import find_bundled
from tinyxp.formats.checkpoint import Checkpoint, TensorInfo
from tinyxp.formats.gguf import open_gguf
from tinyxp.formats.hf_config import config_from_hf
from tinyxp.formats.huggingface import open_folder
from tinyxp.formats.llama2c import open_llama2c
from tinyxp.formats.npz import open_npz

PathLike = str | os.PathLike[str]

NEVER_WRITTEN = (".gguf", ".safetensors", ".json", *PICKLES)
"""Suffixes of files that ``save`` does not write, and so no hub id ends in."""
_OPENERS: dict[str, Callable[[Path], Checkpoint]] = {
    ".gguf": open_gguf,
    ".bin": open_llama2c,
    ".npz": open_npz,
}


def load_config(path: PathLike) -> Config:
    """Read the config of the model at ``path``, named as for ``load``; a folder needs no weights for it."""
    location = _locate(path, hub.CONFIG_PATTERNS)
    return config_from_hf(location) if location.is_dir() else open_checkpoint(location).config


def describe(path: PathLike) -> list[TensorInfo]:
    """Return every tensor of the file, in its order, and what becomes of it; no weights are read.

    Each has its name, the parameters that it holds, its shape and dtype in the file, and the steps of
    loading it, such as ("dequantised", "rows un-permuted, 9 heads"). Errors as for ``load``.
    """
    return open_checkpoint(path).describe()


def open_checkpoint(path: PathLike) -> Checkpoint:
    """Open and check the model at ``path``, named as for ``load``; no weight is read."""
    location = _locate(path, hub.MODEL_PATTERNS)
    return open_folder(location) if location.is_dir() else _OPENERS[location.suffix.lower()](location)


def _locate(path: PathLike, patterns: tuple[str, ...]) -> Path:
    """Return a folder, or a file of a known format, that exists; fetch it from the hub if needed."""
    location = Path(path)
    suffix = location.suffix.lower()
    if not exists(location):
        if (bundled := find_bundled(path)) is not None:
            return bundled
        if hub.HUB_ID.fullmatch(os.fspath(path)) and suffix not in (*_OPENERS, *NEVER_WRITTEN):
            return hub.fetch(os.fspath(path), patterns)
        raise CheckpointError(f"{location}: no such file or folder (a hub id has the form org/name)")
    if location.is_dir() or suffix in _OPENERS:
        return location
    if suffix in PICKLES:
        raise pickle_error(location)
    if suffix in (".safetensors", ".json"):
        raise CheckpointError(f"{location}: pass its folder, with config.json and model.safetensors in it")
    raise CheckpointError(
        f"{location}: {suffix or 'no suffix'} is not a known format; a folder, {', '.join(_OPENERS)} are"
    )
