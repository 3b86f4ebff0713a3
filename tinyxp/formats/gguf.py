"""GGUF files of llama.cpp, plain or quantised. Read only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.files import decode_floats, map_file, name_in_errors
from tinyxp.formats.checkpoint import KINDS, Checkpoint, Tensor, match_rules
from tinyxp.formats.gguf_architectures import ARCHITECTURES
from tinyxp.formats.gguf_config import config_from_gguf
from tinyxp.formats.gguf_header import Header, Place, read_header
from tinyxp.formats.rules import lay_out

INTEGERS = ("I8", "I16", "I32", "I64")
SPECIAL_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}
ROPE_FACTORS = "rope_freqs.weight"

_NUMBERS_AT_ONCE = 2**17


class _Storage(NamedTuple):
    """How the file stores a tensor: ggml's type, its name, and the number of bytes."""

    type: Any
    name: str
    nbytes: int


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file of a known architecture and check its header against its size; no weight is read.

    If any tensor is quantised, all come as float32; else each keeps its dtype. Raises CheckpointError for a
    bad file, UnsupportedModelError naming the metadata key that requests another computation.
    """
    with name_in_errors(path):
        data = map_file(path)
        header = read_header(data)
        tensors = _open_tensors(data, header)
        factors = tensors.get(ROPE_FACTORS)
        if factors is not None and factors.dtype != "F32":
            raise CheckpointError(f"{ROPE_FACTORS} has dtype {factors.dtype}; it must be F32")
        config = config_from_gguf(
            header.metadata,
            {name: tensor.shape for name, tensor in tensors.items()},
            None if factors is None else factors.read(),
        )
    names = ARCHITECTURES[header.metadata["general.architecture"]].names

    def reason_to_skip(name: str) -> str:
        return "became rope_scaling" if name == ROPE_FACTORS else ""

    rules = match_rules(path, config, lambda c: lay_out(names, c), tensors, reason_to_skip)
    special_ids = {ours: header.metadata[key] for key, ours in SPECIAL_IDS.items() if key in header.metadata}
    return Checkpoint(path, config, rules, tensors, special_ids=special_ids, tokenizer_beside=False)


def _open_tensors(data: np.ndarray, header: Header) -> dict[str, Tensor]:
    stored = {name: _find_storage(name, place) for name, place in header.tensors.items()}
    _check_places(header.tensors, stored, data.size)
    plain = all(storage.name in (*KINDS, *INTEGERS) for storage in stored.values())
    return {name: _tensor(name, data, place, stored[name], plain) for name, place in header.tensors.items()}


def _find_storage(name: str, place: Place) -> _Storage:
    import gguf

    try:
        kind = gguf.GGMLQuantizationType(place.type)
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise CheckpointError(f"tensor {name} has ggml type {place.type}, which is not known") from None
    if math.prod(place.shape[-1:]) % block:
        raise CheckpointError(
            f"tensor {name} is {kind.name} of shape {place.shape}, not in blocks of {block}"
        )
    return _Storage(kind, kind.name, math.prod(place.shape) // block * block_bytes)


def _check_places(places: Mapping[str, Place], stored: Mapping[str, _Storage], size: int) -> None:
    """Raise CheckpointError if two tensors overlap or one ends beyond the file."""
    end, before = 0, ""
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        if place.start < end:
            raise CheckpointError(f"tensor {name} starts at byte {place.start:,}, inside {before}")
        end, before = place.start + stored[name].nbytes, name
        if end > size:
            raise CheckpointError(f"tensor {name} ends at byte {end:,} of {size:,}: truncated")


def _tensor(name: str, data: np.ndarray, place: Place, storage: _Storage, plain: bool) -> Tensor:
    if storage.name in INTEGERS:
        return Tensor(place.shape, storage.name, "", storage.nbytes, lambda: data)
    kind = KINDS.get(storage.name)

    def read() -> np.ndarray:
        if kind is None:
            blocks = data[place.start : place.start + storage.nbytes]
            return _dequantise(name, blocks, storage, place.shape)
        values = decode_floats(data, place.start, kind, place.shape)
        # Beside quantised tensors, copy: a view would keep the whole file in memory.
        return values if plain else values.astype(np.float32)

    steps = ("dequantised",) if kind is None else ()
    read_kind = kind if kind and plain else "float32"
    return Tensor(place.shape, storage.name, read_kind, storage.nbytes, read, steps)


def _dequantise(name: str, blocks: np.ndarray, storage: _Storage, shape: tuple[int, ...]) -> np.ndarray:
    """Dequantise in pieces that fit the processor's cache; gguf alone takes 16 rows at a time."""
    import gguf

    numbers, _ = gguf.GGML_QUANT_SIZES[storage.type]
    values = np.empty(shape, np.float32)
    flat = values.reshape(-1, numbers)
    blocks = blocks.reshape(len(flat), -1)
    step = max(_NUMBERS_AT_ONCE // numbers, 1)
    try:
        with np.errstate(all="ignore"):  # scales may be infinite or NaN: so are the weights then
            for i in range(0, len(flat), step):
                piece = gguf.quants.dequantize(blocks[i : i + step].reshape(1, -1), storage.type)
                flat[i : i + step] = piece.reshape(-1, numbers)
    except NotImplementedError:
        raise UnsupportedModelError(
            f"tensor {name} has ggml type {storage.name}, which gguf cannot dequantise"
        ) from None
    return values
