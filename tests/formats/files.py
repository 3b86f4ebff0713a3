"""What the tests of checkpoints make: models of every family, GGUF files, edited folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tinyxp import Config, Params
from tinyxp.config import GPT2, RopeScaling
from tinyxp.shapes import parameter_shapes

SIZES: dict[str, Any] = {
    "vocab_size": 37,
    "n_layers": 2,
    "d_model": 24,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 20,
    "max_seq_len": 32,
}


def draw(config: Config, dtype: str = "float32") -> Params:
    """A model with matrices of std 0.3, and norms and biases off 1 and 0."""
    rng = np.random.default_rng(1)
    return Params(
        {
            name: (rng.normal(0, 0.3, shape) + name.endswith("norm.weight")).astype(dtype)
            for name, shape in parameter_shapes(config).items()
        },
        config,
    )


LLAMA3 = RopeScaling(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16
)


MODELS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2 | {"n_kv_heads": 4},
    "gpt2 untied": GPT2 | {"n_kv_heads": 4, "tie_embeddings": False},
    "gpt2 erf": GPT2 | {"n_kv_heads": 4, "mlp": "gelu"},
    "llama": {},
    "llama tied": {"tie_embeddings": True},
    "llama biases": {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True},
    "llama wide heads": {"head_dim": 10, "n_kv_heads": 1},
    "llama3 scaling": {"rope_scaling": LLAMA3},
    "linear scaling": {"rope_scaling": RopeScaling(rope_type="linear", factor=4.0)},
    "qwen2": {"attn_bias": True, "tie_embeddings": True, "rope_theta": 1e6, "norm_eps": 1e-6},
    "qwen2 wide heads": {"attn_bias": True, "head_dim": 8},
}


def equal(a: Params, b: Params) -> bool:
    return a.config == b.config and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    safetensors = pytest.importorskip("safetensors.numpy")
    return safetensors.load_file(folder / "model.safetensors")


def edit(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {name: x.copy() for name, x in tensors_of(folder).items()}
    change(tensors)
    safetensors.save_file(tensors, folder / "model.safetensors")


def set_config(folder: Path, **keys: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | keys))


NAMES = {
    "embed": "token_embd",
    "pos_embed": "position_embd",
    "final_norm": "output_norm",
    "head": "output",
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


ARCHITECTURES = {
    "llama": {},
    "llama tied": {"tie_embeddings": True},
    "llama biases": {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True},
    "qwen2": {"attn_bias": True, "norm_eps": 1e-6, "rope_theta": 1e6},
    "gpt2": GPT2 | {"n_kv_heads": 4},
    "gpt2 untied": GPT2 | {"n_kv_heads": 4, "tie_embeddings": False},
}


def interleaved(x: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of each head as llama.cpp's converter orders them: 0, hd/2, 1, hd/2 + 1, ..."""
    order = [i // 2 + (i % 2) * head_dim // 2 for i in range(head_dim)]
    rows = [head * head_dim + i for head in range(len(x) // head_dim) for i in order]
    return x[rows]


def to_gguf(params: Params, architecture: str) -> dict[str, np.ndarray]:
    config, tensors = params.config, {}
    for name, x in params.items():
        ours, end = name.rsplit(".", 1)
        part = ours.split(".", 2)[-1] if ours.startswith("blocks.") else ours
        if architecture == "llama" and part in ("attn.q", "attn.k"):
            x = interleaved(x, config.head_dim)
        prefix = f"blk.{ours.split('.')[1]}." if ours.startswith("blocks.") else ""
        tensors[f"{prefix}{NAMES[part]}.{end}"] = np.ascontiguousarray(x)
    if architecture == "gpt2":
        for i in range(config.n_layers):
            for end in ("weight", "bias"):
                parts = [tensors.pop(f"blk.{i}.attn_{x}.{end}") for x in "qkv"]
                tensors[f"blk.{i}.attn_qkv.{end}"] = np.concatenate(parts)
    return tensors


def metadata_of(config: Config, architecture: str) -> dict[str, Any]:
    found = {
        "embedding_length": config.d_model,
        "block_count": config.n_layers,
        "context_length": config.max_seq_len,
        "feed_forward_length": config.d_ff,
        "attention.head_count": config.n_heads,
        "vocab_size": config.vocab_size,
    }
    if architecture == "gpt2":
        return found | {"attention.layer_norm_epsilon": config.norm_eps}
    return found | {
        "attention.head_count_kv": config.n_kv_heads,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.freq_base": config.rope_theta,
    }


NO_WINDOW = {"sliding_window": None}

ROPE_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
ROPE_LAYOUTS = [
    {"rope_theta": 5e5, "rope_scaling": ROPE_LLAMA3},
    {"rope_theta": 5e5, "rope_scaling": ROPE_LLAMA3, "rope_parameters": None},
    {"rope_parameters": {"rope_theta": 5e5, **ROPE_LLAMA3}},
    {"rope_theta": 5e5, "rope_parameters": ROPE_LLAMA3},
    {"rope_theta": 5e5, "rope_scaling": {**ROPE_LLAMA3, "type": "llama3"}},
]
"""The same scaling as files of transformers 4 and of 5 write it."""

WINDOWS: list[dict[str, Any]] = [
    {"max_window_layers": 28},
    {"max_window_layers": 0},
    {},
    {"layer_types": ["full_attention"] * 31 + ["sliding_attention"]},
]
"""Qwen2 files that turn the window on for some of their layers."""


def write_gguf(path: Path, architecture: str, metadata: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """Write a GGUF file; a tensor is an array, or its blocks and their type."""
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
