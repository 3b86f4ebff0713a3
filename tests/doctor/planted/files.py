"""Faults planted in the files of a checkpoint: a Hugging Face folder in float32 is changed where it lies.

Each plant takes the folder to the path of the faulty checkpoint: the folder, or a GGUF written into it.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import tinyxp
from tests.formats.files import interleaved as interleaved_heads
from tests.formats.files import metadata_of, to_gguf

from .ports_numpy import interleaved

Plant = Callable[[Path], Path]
Tensors = dict[str, np.ndarray]

LAYER = re.compile(r"(transformer\.h|model\.layers)\.(\d+)\.(.+)")


def changed(pattern: str, change: Callable[[np.ndarray], np.ndarray]) -> Plant:
    """Every tensor whose name fits becomes what ``change`` makes of it."""

    def edit(tensors: Tensors) -> None:
        names = fnmatch.filter(tensors, pattern)
        assert names, f"no tensor fits {pattern}"
        for name in names:
            tensors[name] = change(tensors[name])

    return _in_tensors(edit)


def transposed(x: np.ndarray) -> np.ndarray:
    return x.T


def rolled(x: np.ndarray) -> np.ndarray:
    """Rows one further down, the last one first."""
    return np.roll(x, 1, axis=0)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 numbers that bfloat16 has, rounded to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def thirds(*order: int) -> Callable[[np.ndarray], np.ndarray]:
    """Thirds of the last axis in another order, such as q, k and v of GPT-2's c_attn."""
    return lambda x: np.concatenate([np.split(x, 3, axis=-1)[i] for i in order], axis=-1)


def without_k(x: np.ndarray) -> np.ndarray:
    """A bias of c_attn whose middle third is zero."""
    q, k, v = np.split(x, 3)
    return np.concatenate([q, np.zeros_like(k), v])


def interleaved_rows(part: str, heads: str) -> Plant:
    """Rows of ``part`` in all layers in GGUF's order, with as many heads as config.json's ``heads`` says."""

    def plant(folder: Path) -> Path:
        count = json.loads((folder / "config.json").read_text())[heads]
        return changed(f"*.{part}.weight", lambda x: interleaved(x, count))(folder)

    return plant


def swapped(one: str, other: str, pattern: str = "*") -> Plant:
    """Tensors of the one name and of the other change places, in the layers whose names fit."""

    def edit(tensors: Tensors) -> None:
        names = [name for name in fnmatch.filter(tensors, pattern) if f".{one}." in name]
        assert names, f"no tensor is of {one}"
        for name in names:
            twin = name.replace(f".{one}.", f".{other}.")
            tensors[name], tensors[twin] = tensors[twin], tensors[name]

    return _in_tensors(edit)


def layers(*sources: int) -> Plant:
    """Layer i becomes what layer ``sources[i]`` was, and there are no others, in config.json neither."""

    def edit(tensors: Tensors) -> None:
        found = {name: (LAYER.fullmatch(name), tensors.pop(name)) for name in sorted(tensors)}
        for name, (place, x) in found.items():
            if place is None:
                tensors[name] = x
                continue
            for i, source in enumerate(sources):
                if int(place[2]) == source:
                    tensors[f"{place[1]}.{i}.{place[3]}"] = x

    def plant(folder: Path) -> Path:
        _in_tensors(edit)(folder)
        known = json.loads((folder / "config.json").read_text())
        key = "n_layer" if "n_layer" in known else "num_hidden_layers"
        return configured(**{key: len(sources)})(folder)

    return plant


def flipped_signs(name: str, count: int = 3) -> Plant:
    """One bit in each of the first numbers of a tensor, in the file's bytes."""

    def plant(folder: Path) -> Path:
        with (folder / "model.safetensors").open("r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            start = 8 + length + json.loads(file.read(length))[name]["data_offsets"][0]
            file.seek(start)
            numbers = bytearray(file.read(4 * count))
            for i in range(3, 4 * count, 4):
                numbers[i] ^= 0x80
            file.seek(start)
            file.write(numbers)
        return folder

    return plant


def configured(**keys: Any) -> Plant:
    """config.json with other values."""

    def plant(folder: Path) -> Path:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        return folder

    return plant


def rope(**keys: Any) -> Plant:
    """config.json with other values of RoPE's, wherever transformers 4 and 5 read them."""

    def plant(folder: Path) -> Path:
        known = json.loads((folder / "config.json").read_text())
        parameters = known["rope_parameters"] | keys
        scaling = {name: x for name, x in parameters.items() if name != "rope_theta"}
        return configured(
            rope_parameters=parameters,
            rope_theta=parameters["rope_theta"],
            rope_scaling=None if parameters["rope_type"] == "default" else scaling,
        )(folder)

    return plant


def unscaled_rope(folder: Path) -> Path:
    """config.json without the scaling of RoPE."""
    theta = json.loads((folder / "config.json").read_text())["rope_parameters"]["rope_theta"]
    return configured(rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": theta})(
        folder
    )


def tied(folder: Path) -> Path:
    """An untied model without its head, said to be tied."""
    _in_tensors(lambda tensors: tensors.pop("lm_head.weight"))(folder)
    return configured(tie_word_embeddings=True)(folder)


def untied(folder: Path) -> Path:
    """A tied model with a head that nobody trained, said to be untied."""

    def edit(tensors: Tensors) -> None:
        table = tensors["transformer.wte.weight"]
        drawn = np.random.default_rng(7).normal(0.0, 0.02, table.shape)
        tensors["lm_head.weight"] = drawn.astype(table.dtype)

    _in_tensors(edit)(folder)
    return configured(tie_word_embeddings=False)(folder)


def gguf_with(change: Callable[[tinyxp.Params, Tensors], None]) -> Plant:
    """model.gguf of a Llama, with tensors that ``change`` has changed."""

    def plant(folder: Path) -> Path:
        params = tinyxp.load(folder)
        tensors = to_gguf(params, "llama")
        change(params, tensors)
        writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
        for key, value in metadata_of(params.config, "llama").items():
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(f"llama.{key}", value)
        for name, x in tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(x))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return folder / "model.gguf"

    return plant


def q_as_in_transformers(params: tinyxp.Params, tensors: Tensors) -> None:
    """The converter's turning of q's rows left out."""
    for i in range(params.config.n_layers):
        tensors[f"blk.{i}.attn_q.weight"] = params[f"blocks.{i}.attn.q.weight"]


def k_by_n_heads(params: tinyxp.Params, tensors: Tensors) -> None:
    """k's rows turned with the number of query heads."""
    config = params.config
    size = config.head_dim * config.n_kv_heads // config.n_heads
    for i in range(config.n_layers):
        tensors[f"blk.{i}.attn_k.weight"] = interleaved_heads(params[f"blocks.{i}.attn.k.weight"], size)


def _in_tensors(edit: Callable[[Tensors], object]) -> Plant:
    def plant(folder: Path) -> Path:
        safetensors = pytest.importorskip("safetensors.numpy")
        path = folder / "model.safetensors"
        tensors = safetensors.load_file(path)
        edit(tensors)
        # Views that are not in C order would be written scrambled.
        whole = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
        safetensors.save_file(whole, path, metadata={"format": "pt"})
        return folder

    return plant
