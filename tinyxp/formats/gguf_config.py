"""GGUF metadata -> Config, by the declarations in ``gguf_architectures``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinyxp.config import Config
from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.formats.fields import Fields
from tinyxp.formats.gguf_architectures import ARCHITECTURES, Architecture
from tinyxp.formats.gguf_rope import read_scaling, scaling_from_factors, shortest_decimal

Shapes = Mapping[str, tuple[int, ...]]


def config_from_gguf(metadata: Mapping[str, Any], shapes: Shapes, factors: np.ndarray | None) -> Config:
    """Read the Config of a GGUF file. It has biases and a head of its own if their tensors exist.

    ``shapes`` are the tensors' shapes; ``factors`` (hd/2,) is rope_freqs.weight, which divides the rotary
    frequencies, or None. Numbers were rounded to float32: each is read as the shortest decimal that rounds
    to it, so that 1e-5 is 1e-5. Raises UnsupportedModelError naming the key that requests another
    computation, ValueError naming the key of a bad value.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedModelError(f"general.architecture is {name!r}; known are {', '.join(ARCHITECTURES)}")
    prefix = f"{name}."
    own = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    fields = Fields(own, prefix)
    config = _read_config(fields, ARCHITECTURES[name], shapes)
    fields.reject_unread()
    if factors is None:
        return config
    if config.rope_scaling is not None:
        raise UnsupportedModelError("rope_freqs.weight is present beside rope.scaling.type")
    original = fields.integer("rope.scaling.original_context_length", 8192)
    return replace(config, rope_scaling=scaling_from_factors(config, factors, original))


def _read_config(fields: Fields, architecture: Architecture, shapes: Shapes) -> Config:
    sizes = _read_sizes(fields)
    _reject_other_attention(fields, sizes)
    table = shapes.get("token_embd.weight")
    if table is None:
        raise CheckpointError("token_embd.weight is missing")
    rope: dict[str, Any] = {}
    if architecture.constants["position"] == "rope":
        theta = shortest_decimal(fields.number("rope.freq_base", 10000.0))
        rope = {"rope_theta": theta, "rope_scaling": read_scaling(fields)}
    biases: dict[str, Any] = {field: tensor in shapes for field, tensor in architecture.bias_tensors.items()}
    return Config(
        **sizes,
        **rope,
        **biases,
        **architecture.constants,
        vocab_size=fields.integer("vocab_size", table[0] if table else None),
        d_ff=_read_uniform(fields, "feed_forward_length"),
        norm_eps=shortest_decimal(fields.number(architecture.epsilon)),
        tie_embeddings="output.weight" not in shapes,
    )


def _read_sizes(fields: Fields) -> dict[str, Any]:
    width, layers = fields.integer("embedding_length"), fields.integer("block_count")
    length = fields.integer("context_length")
    heads = _read_uniform(fields, "attention.head_count")
    kv_heads = _read_uniform(fields, "attention.head_count_kv", heads)
    if heads % kv_heads:
        raise ValueError(
            f"attention.head_count_kv is {kv_heads}; it must divide attention.head_count, {heads}"
        )
    head_dim = fields.integer("attention.key_length", width // heads or None)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(key, head_dim) != head_dim:
            fields.reject(key, f"head_dim is {head_dim}")
    return {
        "n_layers": layers,
        "d_model": width,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "head_dim": head_dim,
        "max_seq_len": length,
    }


def _reject_other_attention(fields: Fields, sizes: Mapping[str, int]) -> None:
    length, scale = sizes["max_seq_len"], sizes["head_dim"] ** -0.5
    window = fields.get("attention.sliding_window", 0)
    if window and not (isinstance(window, int) and window >= length):
        fields.reject("attention.sliding_window", f"attention here sees all of context_length, {length}")
    if "attention.scale" in fields and not math.isclose(
        fields.number("attention.scale"), scale, rel_tol=1e-6
    ):
        fields.reject("attention.scale", f"scores are scaled by 1/sqrt(head_dim), {scale:.6g}")
    if not fields.flag("attention.causal", True):
        fields.reject("attention.causal", "this decoder's attention is causal")


def _read_uniform(fields: Fields, key: str, default: int | None = None) -> int:
    """Read a size that may be a list with one value for each layer, all of them equal."""
    value = fields.get(key)
    if not isinstance(value, list):
        return fields.integer(key, default)
    if not value or value.count(value[0]) < len(value):
        fields.reject(key, "all layers are alike here")
    return Fields({key: value[0]}).integer(key)
