"""GGUF metadata -> Config: llama.cpp's keys of the architectures llama, gpt2 and qwen2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinyxp.config import Config, RopeScaling
from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.formats.fields import Fields
from tinyxp.rope import rope_frequencies

ARCHITECTURES = ("llama", "gpt2", "qwen2")


def config_from_gguf(
    metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], factors: np.ndarray | None
) -> Config:
    """Config of a GGUF file. Biases and a head of its own are there where their tensors are.

    ``shapes`` are the tensors' shapes; ``factors`` (hd/2,) what rope_freqs.weight divides the rotary
    frequencies by, or None. Numbers were rounded to float32: each is read as the shortest decimal that
    rounds to it, so that 1e-5 is 1e-5. Raises UnsupportedModelError naming the key that asks for something
    else, ValueError naming the key of a bad value.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"general.architecture is {architecture!r}; known are {', '.join(ARCHITECTURES)}"
        )
    prefix = f"{architecture}."
    own = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    fields = Fields(own, prefix)
    config = _read(fields, architecture == "gpt2", shapes)
    fields.refuse_unread()
    if factors is None:
        return config
    if config.rope_scaling is not None:
        raise UnsupportedModelError("rope_freqs.weight stands beside rope.scaling.type")
    original = fields.integer("rope.scaling.original_context_length", 8192)
    return replace(config, rope_scaling=_scaling_of(config, factors, original))


def _read(fields: Fields, gpt2: bool, shapes: Mapping[str, tuple[int, ...]]) -> Config:
    width, layers = fields.integer("embedding_length"), fields.integer("block_count")
    length = fields.integer("context_length")
    heads = _same_in_all_layers(fields, "attention.head_count")
    kv_heads = _same_in_all_layers(fields, "attention.head_count_kv", heads)
    if heads % kv_heads:
        raise ValueError(
            f"attention.head_count_kv is {kv_heads}; it must divide attention.head_count, {heads}"
        )
    head_dim = fields.integer("attention.key_length", width // heads or None)
    for key, limit in (("attention.value_length", head_dim), ("rope.dimension_count", head_dim)):
        if fields.integer(key, limit) != limit:
            fields.refuse(key, f"head_dim is {head_dim}")
    window = fields.get("attention.sliding_window", 0)
    if window and not (isinstance(window, int) and window >= length):
        fields.refuse("attention.sliding_window", f"attention here sees all of context_length, {length}")
    if "attention.scale" in fields and not math.isclose(
        fields.number("attention.scale"), head_dim**-0.5, rel_tol=1e-6
    ):
        fields.refuse("attention.scale", f"scores are scaled by 1/sqrt(head_dim), {head_dim**-0.5:.6g}")
    if not fields.flag("attention.causal", True):
        fields.refuse("attention.causal", "this decoder's attention is causal")
    table = shapes.get("token_embd.weight")
    if table is None:
        raise CheckpointError("token_embd.weight is missing")
    epsilon = "attention.layer_norm_epsilon" if gpt2 else "attention.layer_norm_rms_epsilon"
    return Config(
        vocab_size=fields.integer("vocab_size", table[0] if table else None),
        n_layers=layers,
        d_model=width,
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=head_dim,
        d_ff=_same_in_all_layers(fields, "feed_forward_length"),
        max_seq_len=length,
        rope_theta=10000.0 if gpt2 else _shortest(fields.number("rope.freq_base", 10000.0)),
        rope_scaling=None if gpt2 else _scaling(fields),
        norm_eps=_shortest(fields.number(epsilon)),
        tie_embeddings="output.weight" not in shapes,
        norm="layer" if gpt2 else "rms",
        position="learned" if gpt2 else "rope",
        mlp="gelu_tanh" if gpt2 else "swiglu",
        attn_bias=gpt2 or "blk.0.attn_q.bias" in shapes,
        attn_out_bias=gpt2 or "blk.0.attn_output.bias" in shapes,
        mlp_bias=gpt2 or "blk.0.ffn_up.bias" in shapes,
    )


def _same_in_all_layers(fields: Fields, key: str, default: int | None = None) -> int:
    value = fields.get(key)
    if not isinstance(value, list):
        return fields.integer(key, default)
    if not value or value.count(value[0]) < len(value):
        fields.refuse(key, "all layers are alike here")
    return Fields({key: value[0]}).integer(key)


def _scaling(fields: Fields) -> RopeScaling | None:
    fields.get("rope.scaling.finetuned")
    fields.get("rope.scaling.original_context_length")
    kind = fields.get("rope.scaling.type", "linear" if "rope.scale_linear" in fields else "none")
    older = fields.number("rope.scale_linear", 1.0)
    if kind not in ("none", "linear"):
        fields.refuse("rope.scaling.type", "known are 'none' and 'linear'")
    factor = _shortest(fields.number("rope.scaling.factor", older))
    return None if kind == "none" or factor == 1.0 else RopeScaling(rope_type="linear", factor=factor)


def _scaling_of(config: Config, factors: np.ndarray, original: int) -> RopeScaling | None:
    """The scaling whose frequencies are the plain ones over ``factors``: llama3's form, or linear.

    A factor f stands for keep = (1/f - 1/F) / (1 - 1/F), where F is the largest, and keep is linear in the
    turns that the frequency makes in ``original`` positions, between low_freq_factor and high_freq_factor.
    """
    plain = np.asarray(rope_frequencies(config))
    refused = UnsupportedModelError("rope_freqs.weight is not of Llama 3's form")
    if factors.shape != plain.shape or not np.all(np.isfinite(factors)) or not np.all(factors >= 1.0):
        raise refused
    factors = factors.astype(np.float64)
    largest = _shortest(float(factors.max()))
    if np.all(factors == factors[0]):
        return None if largest == 1.0 else RopeScaling(rope_type="linear", factor=largest)
    turns = original * plain / (2.0 * math.pi)
    keep = (1.0 / factors - 1.0 / largest) / (1.0 - 1.0 / largest)
    candidates = [(1.0, 4.0)]
    between = np.flatnonzero((keep > 1e-5) & (keep < 1.0 - 1e-5))  # the ends carry rounding
    if len(between) > 1:
        first, last = between[0], between[-1]
        width = (turns[first] - turns[last]) / (keep[first] - keep[last])
        low = turns[first] - keep[first] * width
        candidates += [(round(low, digits), round(low + width, digits)) for digits in (3, 15)]
    for low, high in candidates:
        if not 0.0 < low < high:
            continue
        found = RopeScaling(
            rope_type="llama3",
            factor=largest,
            low_freq_factor=float(low),
            high_freq_factor=float(high),
            original_max_seq_len=original,
        )
        if np.allclose(
            plain / rope_frequencies(replace(config, rope_scaling=found)), factors, rtol=1e-6, atol=0.0
        ):
            return found
    raise refused


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))
