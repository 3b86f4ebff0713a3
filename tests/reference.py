"""What several test modules share: models filled by rule, random ones at the scale of training, and the
same models as Hugging Face's transformers has them."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params
from tinyxp.config import GPT2
from tinyxp.shapes import parameter_shapes

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)  # these models are tiny: threads only wait for each other

IDS = [[3, 1, 4, 1, 5]]
"""The input of the models that are filled by rule."""

GPT2_CONFIG = Config(
    **GPT2, vocab_size=11, max_seq_len=16, d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_ff=32
)
LLAMA_CONFIG = Config(vocab_size=11, d_model=8, d_ff=12, n_layers=2, n_heads=2, n_kv_heads=1)
LLAMA_TIED_CONFIG = replace(LLAMA_CONFIG, tie_embeddings=True)
CONFIGS = {"gpt2": GPT2_CONFIG, "llama": LLAMA_CONFIG}

FLOAT32 = 1e-5
"""Two float32 runs of these small models, logits of size 3, in whatever order they sum."""

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


def alone(config: Config, row: Any) -> np.ndarray:
    """The logits (t, n) of one row by itself, in float64 on NumPy."""
    return tinyxp.forward(filled(config), [list(row)])[0]


def padded(rows: list[list[int]], lefts: list[int], width: int, pads: Any) -> tuple[np.ndarray, np.ndarray]:
    """ids and mask (b, width), each row after so many columns of padding."""
    ids, mask = np.array(pads, dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for r, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        ids[r, left : left + len(row)] = row
        mask[r, left : left + len(row)] = True
    return ids, mask


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


@functools.cache
def filled(config: Config) -> Params:
    """The float64 model without random numbers: number n of the k-th sorted parameter of Hugging Face's is
    0.3 sin(0.7 n + 1.3 k), and 1 more for the weights of norms."""
    state = {}
    for k, (name, shape) in enumerate(sorted(their_shapes(config).items())):
        flat = 0.3 * np.sin(0.7 * np.arange(math.prod(shape)) + 1.3 * k)
        is_norm = name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
        state[name] = flat.reshape(shape) + is_norm
    return Params(from_theirs(state, config), config)


@functools.cache
def drawn(config: Config, std: float = 0.2, seed: int = 0) -> Params:
    """A float32 model with normal matrices of this std, and norms and biases off their usual 1 and 0."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in parameter_shapes(config).items():
        x = rng.normal(0.0, std if len(shape) == 2 else 0.1, shape)
        if len(shape) == 1 and name.endswith(".weight"):
            x += 1.0
        arrays[name] = x.astype(np.float32)
    return Params(arrays, config)


def libraries(*names: str) -> list[Any]:
    """Parameters of a test, one for each library; skipped, saying so, where it is not installed."""
    found = tinyxp.available_backends()
    return [
        pytest.param(name, marks=pytest.mark.skipif(found[name] is None, reason=f"{name} is not installed"))
        for name in names
    ]


def array(backend: tinyxp.Backend, x: Any, dtype: str | None = None) -> Any:
    """Numbers as an array of the backend: floats in ``dtype``, integers as they are."""
    return backend.from_numpy(np.asarray(x), dtype=dtype)


def kind(x: Any) -> str:
    """The bare name of an array's dtype: torch.float32 is "float32"."""
    return str(x.dtype).rpartition(".")[2]


def host(x: Any) -> np.ndarray:
    """An array of any backend on NumPy; NumPy's own functions give scalars for arrays without dimensions."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    return tinyxp.registry.backend_of(x).to_numpy(x)


def distance(a: Any, b: Any) -> float:
    """The largest difference of two arrays of any backends."""
    a, b = (x if isinstance(x, np.ndarray) else host(x) for x in (a, b))
    assert a.shape == b.shape
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))


def float64_on(backend: tinyxp.Backend) -> contextlib.AbstractContextManager[Any]:
    """Lets JAX compute in float64; the other libraries do anyway."""
    return backend.float64()


def their_model(params: Params, dtype: str = "float32") -> Any:
    """The model of transformers with these parameters, eager attention, in ``dtype``."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    c = params.config
    shared = {
        "vocab_size": c.vocab_size,
        "tie_word_embeddings": c.tie_embeddings,
        "attn_implementation": "eager",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if is_gpt2(c):
        theirs = transformers.GPT2Config(
            n_positions=c.max_seq_len,
            n_embd=c.d_model,
            n_layer=c.n_layers,
            n_head=c.n_heads,
            n_inner=c.d_ff,
            activation_function={"gelu_tanh": "gelu_new", "gelu": "gelu"}[c.mlp],
            layer_norm_epsilon=c.norm_eps,
            **shared,
        )
    else:
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rope_theta}
        if c.rope_scaling is not None:
            s = c.rope_scaling
            rope |= {"rope_type": s.rope_type, "factor": s.factor}
            if s.rope_type == "llama3":
                rope |= {
                    "low_freq_factor": s.low_freq_factor,
                    "high_freq_factor": s.high_freq_factor,
                    "original_max_position_embeddings": s.original_max_seq_len,
                }
        is_qwen2 = c.attn_bias and not c.attn_out_bias
        extra = {} if is_qwen2 else {"attention_bias": c.attn_bias, "mlp_bias": c.mlp_bias}
        theirs = (transformers.Qwen2Config if is_qwen2 else transformers.LlamaConfig)(
            hidden_size=c.d_model,
            intermediate_size=c.d_ff,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            num_key_value_heads=c.n_kv_heads,
            head_dim=c.head_dim,
            max_position_embeddings=c.max_seq_len,
            rms_norm_eps=c.norm_eps,
            rope_parameters=rope,
            **shared,
            **extra,
        )
    # Made without memory or initialisation, then given its weights: GPT-2 small costs its size and no more.
    model = transformers.AutoModelForCausalLM.from_config(theirs, dtype=getattr(torch, dtype))
    state = {
        name: torch.tensor(x).to(getattr(torch, dtype)) for name, x in to_theirs(dict(params), c).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])
    model.tie_weights()
    return model.eval()
