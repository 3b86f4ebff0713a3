"""The parameters of the tests' models under Hugging Face's names and in its layout, written out independently
of ``tinyxp.formats``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinyxp import Config
from tinyxp.shapes import parameter_shapes

GPT2_NAMES = {
    "embed": "transformer.wte",
    "pos_embed": "transformer.wpe",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
    "attn_norm": "ln_1",
    "attn.q": "attn.c_attn",
    "attn.k": "attn.c_attn",
    "attn.v": "attn.c_attn",
    "attn.o": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "attn_norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def is_gpt2(config: Config) -> bool:
    return config.position == "learned"


def their_name(config: Config, name: str) -> str:
    """Our name of a parameter -> Hugging Face's; q, k and v of GPT-2 become one."""
    stem, kind = name.rsplit(".", 1)
    names, blocks = (GPT2_NAMES, "transformer.h") if is_gpt2(config) else (LLAMA_NAMES, "model.layers")
    if stem.startswith("blocks."):
        _, i, part = stem.split(".", 2)
        return f"{blocks}.{i}.{names[part]}.{kind}"
    return f"{names[stem]}.{kind}"


def to_theirs(arrays: Mapping[str, np.ndarray], config: Config) -> dict[str, np.ndarray]:
    """Our parameters -> Hugging Face's state dict."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, x in arrays.items():
        stored = x.T if is_stored_in_out(config, name) else x
        parts.setdefault(their_name(config, name), []).append(stored)
    return {name: np.concatenate(p, axis=-1) if len(p) > 1 else p[0] for name, p in parts.items()}


def is_stored_in_out(config: Config, name: str) -> bool:
    return is_gpt2(config) and name.endswith(".weight") and (".attn." in name or ".mlp." in name)


def from_theirs(state: Mapping[str, np.ndarray], config: Config) -> dict[str, np.ndarray]:
    """Hugging Face's state dict -> our parameters."""
    arrays, taken = {}, dict.fromkeys(state, 0)
    for name, shape in parameter_shapes(config).items():
        theirs = their_name(config, name)
        start = taken[theirs]
        taken[theirs] += shape[0]
        stored = state[theirs]
        if is_stored_in_out(config, name):
            stored = stored.T
        arrays[name] = np.ascontiguousarray(stored[start : start + shape[0]])
    return arrays


def their_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    empty = {name: np.empty(shape, dtype=bool) for name, shape in parameter_shapes(config).items()}
    return {name: x.shape for name, x in to_theirs(empty, config).items()}
