"""GGUF files of llama.cpp, plain or quantised. Read only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.files import floats, map_file, naming
from tinyxp.formats.gguf_config import config_from_gguf
from tinyxp.formats.gguf_header import Header, Place, read_header
from tinyxp.formats.plan import KINDS, Checkpoint, Rule, Tensor, fit
from tinyxp.shapes import block_shapes

INTEGERS = ("I8", "I16", "I32", "I64")
SPECIAL_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}

_NUMBERS_AT_ONCE = 2**17

_TOP = {
    "token_embd": "embed",
    "position_embd": "pos_embed",
    "output_norm": "final_norm",
    "output": "head",
}
_BLOCK = {
    "attn_norm": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}


def layout(config: Config, architecture: str) -> Iterator[Rule]:
    """llama.cpp's tensors, (out, in) all: its converter has turned GPT-2's matrices round.

    Rows of q and k pair neighbours in architecture llama alone, since ggml rotates the others by halves.
    """
    gpt2 = architecture == "gpt2"
    heads = {"attn.q": config.n_heads, "attn.k": config.n_kv_heads} if architecture == "llama" else {}
    for theirs, ours in _TOP.items():
        if (ours == "pos_embed" and not gpt2) or (ours == "head" and config.tie_embeddings):
            continue
        yield Rule(f"{theirs}.weight", (f"{ours}.weight",))
        if gpt2 and ours == "final_norm":
            yield Rule(f"{theirs}.bias", (f"{ours}.bias",))
    for i in range(config.n_layers):
        for name in block_shapes(config):
            ours, end = name.rsplit(".", 1)
            if gpt2 and ours in ("attn.q", "attn.k", "attn.v"):
                continue
            yield Rule(
                f"blk.{i}.{_BLOCK[ours]}.{end}", (f"blocks.{i}.{name}",), interleaved=heads.get(ours, 0)
            )
        if gpt2:
            for end in ("weight", "bias"):
                targets = tuple(f"blocks.{i}.attn.{x}.{end}" for x in "qkv")
                yield Rule(f"blk.{i}.attn_qkv.{end}", targets)


def open_gguf(path: Path) -> Checkpoint:
    """A GGUF file of architecture llama, gpt2 or qwen2, its header held against its size; no weight is read.

    Where any tensor is quantised all come as float32; else each keeps its dtype. Raises CheckpointError for
    a bad file, UnsupportedModelError naming the metadata key that asks for another computation.
    """
    with naming(path):
        data = map_file(path)
        header = read_header(data)
        tensors = _tensors(data, header)
        factors = tensors.get("rope_freqs.weight")
        if factors is not None and factors.dtype != "F32":
            raise CheckpointError(f"rope_freqs.weight has dtype {factors.dtype}; it must be F32")
        config = config_from_gguf(
            header.metadata,
            {name: tensor.shape for name, tensor in tensors.items()},
            None if factors is None else factors.read(),
        )
    architecture = header.metadata["general.architecture"]

    def skipped(name: str) -> str:
        return "became rope_scaling" if name == "rope_freqs.weight" else ""

    rules = fit(path, config, lambda c: layout(c, architecture), tensors, skipped)
    special_ids = {ours: header.metadata[key] for key, ours in SPECIAL_IDS.items() if key in header.metadata}
    return Checkpoint(path, config, rules, tensors, special_ids=special_ids, tokenizer_beside=False)


def _tensors(data: np.ndarray, header: Header) -> dict[str, Tensor]:
    import gguf

    sizes: dict[str, int] = {}
    types: dict[str, Any] = {}
    for name, place in header.tensors.items():
        try:
            types[name] = gguf.GGMLQuantizationType(place.type)
            block, block_bytes = gguf.GGML_QUANT_SIZES[types[name]]
        except (ValueError, KeyError):
            raise CheckpointError(f"tensor {name} has ggml type {place.type}, which is not known") from None
        if math.prod(place.shape[-1:]) % block:
            raise CheckpointError(
                f"tensor {name} is {types[name].name} of shape {place.shape}, not in blocks of {block}"
            )
        sizes[name] = math.prod(place.shape) // block * block_bytes
    end, before = 0, ""
    for name, place in sorted(header.tensors.items(), key=lambda item: item[1].start):
        if place.start < end:
            raise CheckpointError(f"tensor {name} starts at byte {place.start:,}, inside {before}")
        end, before = place.start + sizes[name], name
        if end > data.size:
            raise CheckpointError(f"tensor {name} ends at byte {end:,} of {data.size:,}: truncated")
    plain = all(types[name].name in (*KINDS, *INTEGERS) for name in types)
    return {
        name: _tensor(name, data, place, types[name], sizes[name], plain)
        for name, place in header.tensors.items()
    }


def _tensor(name: str, data: np.ndarray, place: Place, qtype: Any, size: int, plain: bool) -> Tensor:
    if qtype.name in INTEGERS:
        return Tensor(place.shape, qtype.name, "", size, lambda: data)
    kind = KINDS.get(qtype.name)

    def read() -> np.ndarray:
        if kind is None:
            return _dequantise(name, data[place.start : place.start + size], qtype, place.shape)
        values = floats(data, place.start, kind, place.shape)
        # Beside quantised tensors a copy, for a view would keep the whole file in memory.
        return values if plain else values.astype(np.float32)

    steps = ("dequantised",) if kind is None else ()
    return Tensor(place.shape, qtype.name, kind if kind and plain else "float32", size, read, steps)


def _dequantise(name: str, blocks: np.ndarray, qtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """In parts that stay in the processor's cache; gguf by itself takes 16 rows at a time, however short."""
    import gguf

    numbers, _ = gguf.GGML_QUANT_SIZES[qtype]
    values = np.empty(shape, np.float32)
    flat = values.reshape(-1, numbers)
    blocks = blocks.reshape(len(flat), -1)
    step = max(_NUMBERS_AT_ONCE // numbers, 1)
    try:
        with np.errstate(all="ignore"):  # scales may be infinite or NaN: so are the weights then
            for i in range(0, len(flat), step):
                part = gguf.quants.dequantize(blocks[i : i + step].reshape(1, -1), qtype)
                flat[i : i + step] = part.reshape(-1, numbers)
    except NotImplementedError:
        raise UnsupportedModelError(
            f"tensor {name} has ggml type {qtype.name}, which gguf cannot dequantise"
        ) from None
    return values
