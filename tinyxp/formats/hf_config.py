"""Hugging Face's config.json <-> Config, as the classes of transformers 4 and 5 read and write it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyxp.config import Config, RopeScaling
from tinyxp.errors import UnsupportedModelError
from tinyxp.files import naming, read_json
from tinyxp.formats.fields import Fields

GELU_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast")
GELU = ("gelu", "gelu_python")
SILU = ("silu", "swish")

# What each class of transformers takes where a key is missing; num_key_value_heads None is all heads.
_LLAMA: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
}
_DEFAULTS = {
    "llama": _LLAMA,
    "mistral": _LLAMA
    | {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
    "qwen2": _LLAMA
    | {
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
    },
}


def config_from_hf(source: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """Hugging Face's config.json (its dict, the file, or its folder) -> Config.

    model_type gpt2, llama, mistral or qwen2, in the layout of transformers 4 (rope_theta, rope_scaling) or 5
    (rope_parameters); a missing or null key means what the class of transformers 5 means by it. Raises
    UnsupportedModelError naming the key that asks for what this decoder does not compute, ValueError naming
    the key of a bad value, CheckpointError for a file that is not a JSON object.
    """
    if not isinstance(source, Mapping):
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        values = read_json(path)
        with naming(path):
            return config_from_hf(values)
    fields = Fields(source)
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in ("gpt2", *_DEFAULTS):
        raise UnsupportedModelError(f"model_type is {kind!r}; known are gpt2, {', '.join(_DEFAULTS)}")
    _refuse_everywhere(fields)
    config = _gpt2(fields) if kind == "gpt2" else _llama(fields, kind)
    fields.refuse_unread()
    return config


def _refuse_everywhere(fields: Fields) -> None:
    if "quantization_config" in fields:
        fields.refuse("quantization_config", "quantised weights are read from GGUF files only")
    if not fields.flag("is_causal", True):
        fields.refuse("is_causal", "this decoder's attention is causal")
    for key in ("add_cross_attention", "is_encoder_decoder"):
        if fields.flag(key, False):
            fields.refuse(key, "this is a decoder alone")


def _gpt2(fields: Fields) -> Config:
    if not fields.flag("scale_attn_weights", True):
        fields.refuse("scale_attn_weights", "scores are always scaled by 1/sqrt(head_dim)")
    if fields.flag("scale_attn_by_inverse_layer_idx", False):
        fields.refuse("scale_attn_by_inverse_layer_idx", "scores are scaled alike in every layer")
    activation = fields.get("activation_function", "gelu_new")
    if activation not in GELU_TANH + GELU:
        fields.refuse("activation_function", f"known are {', '.join(GELU_TANH + GELU)}")
    heads = _aliased(fields, "n_head", "num_attention_heads", 12)
    width = _aliased(fields, "n_embd", "hidden_size", 768)
    if width % heads:
        raise ValueError(f"n_head is {heads}; it must divide n_embd, {width}")
    return Config(
        vocab_size=fields.integer("vocab_size", 50257),
        n_layers=_aliased(fields, "n_layer", "num_hidden_layers", 12),
        d_model=width,
        n_heads=heads,
        n_kv_heads=heads,
        d_ff=fields.integer("n_inner", 4 * width),
        max_seq_len=_aliased(fields, "n_positions", "max_position_embeddings", 1024),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        norm="layer",
        position="learned",
        mlp="gelu" if activation in GELU else "gelu_tanh",
        attn_bias=True,
        attn_out_bias=True,
        mlp_bias=True,
    )


def _aliased(fields: Fields, key: str, alias: str, default: int) -> int:
    """GPT-2's own name of a size, or the common one, which transformers takes too."""
    if alias not in fields:
        return fields.integer(key, default)
    value = fields.integer(alias)
    if key in fields and fields.integer(key) != value:
        raise ValueError(f"{key} is {fields.integer(key)}, but {alias} is {value}")
    return value


def _llama(fields: Fields, kind: str) -> Config:
    if fields.get("hidden_act", "silu") not in SILU:
        fields.refuse("hidden_act", f"a gated MLP knows {', '.join(SILU)}")
    given = _DEFAULTS[kind]
    sizes = {key: fields.integer(key, given[key]) for key in given if key != "num_key_value_heads"}
    heads, length = sizes["num_attention_heads"], sizes["max_position_embeddings"]
    usual = None if fields.is_null("num_key_value_heads") else given["num_key_value_heads"]
    kv_heads = fields.integer("num_key_value_heads", usual or heads)
    if heads % kv_heads:
        raise ValueError(f"num_key_value_heads is {kv_heads}; it must divide num_attention_heads, {heads}")
    if "head_dim" not in fields and sizes["hidden_size"] % heads:
        raise ValueError(
            f"num_attention_heads is {heads}; it must divide hidden_size, {sizes['hidden_size']}"
        )
    _refuse_windows(fields, kind, sizes["num_hidden_layers"], length)
    theta, scaling = _rope(fields, length)
    attention_bias = kind == "llama" and fields.flag("attention_bias", False)
    return Config(
        vocab_size=sizes["vocab_size"],
        n_layers=sizes["num_hidden_layers"],
        d_model=sizes["hidden_size"],
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=fields.integer("head_dim", sizes["hidden_size"] // heads),
        d_ff=sizes["intermediate_size"],
        max_seq_len=length,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        norm="rms",
        position="rope",
        mlp="swiglu",
        attn_bias=attention_bias or kind == "qwen2",
        attn_out_bias=attention_bias,
        mlp_bias=kind == "llama" and fields.flag("mlp_bias", False),
    )


def _refuse_windows(fields: Fields, kind: str, n_layers: int, length: int) -> None:
    """Attention windows are harmless where they are off or no narrower than the context."""
    usual = None if kind == "llama" or fields.is_null("sliding_window") else 4096
    window = fields.get("sliding_window", usual)
    on = fields.flag("use_sliding_window", kind != "qwen2") or kind == "mistral"  # whose class does not ask
    first = fields.get("max_window_layers", 28)
    layers = fields.get("layer_types", [])
    for key, value, wanted in (
        ("sliding_window", window, int),
        ("max_window_layers", first, int),
        ("layer_types", layers, list),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, wanted)):
            raise ValueError(f"{key} is {value!r}; it must be {wanted.__name__} or null")
    if kind == "qwen2":  # the only class that looks layer by layer
        on = on and ("sliding_attention" in layers if layers else first < n_layers)
    if on and window is not None and window < length:
        because = f"attention here sees all of max_position_embeddings, {length}"
        raise UnsupportedModelError(f"sliding_window is {window}: {because}")


def _rope(fields: Fields, length: int) -> tuple[float, RopeScaling | None]:
    """theta and the scaling, wherever they stand; transformers lets a non-empty rope_scaling win."""
    newer, older = fields.get("rope_parameters", {}), fields.get("rope_scaling", {})
    key, found = ("rope_scaling", older) if older else ("rope_parameters", newer)
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} is {found!r}; it must be an object or null")
    inner = Fields(found, f"{key}.")
    theta = inner.number("rope_theta", fields.number("rope_theta", 10000.0))
    original = inner.get("original_max_position_embeddings", length)
    original = fields.get("original_max_position_embeddings", original)
    if any(isinstance(value, Mapping) for value in found.values()):
        fields.refuse(key, "all layers share one rotation")
    for owner in (fields, inner):
        if owner.get("partial_rotary_factor", 1.0) != 1.0:
            owner.refuse("partial_rotary_factor", "heads are rotated whole")
    kind = inner.get("rope_type", inner.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModelError(f"{key}.rope_type is {kind!r}: known are 'default', 'linear', 'llama3'")
    inner.refuse_unread()
    if kind == "default" and inner.get("factor", 1.0) != 1.0:
        inner.refuse("factor", "no rope_type says what it stretches")
    if kind == "default":
        return theta, None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": inner.number("factor")}
    if kind == "llama3":
        scaling["low_freq_factor"] = inner.number("low_freq_factor")
        scaling["high_freq_factor"] = inner.number("high_freq_factor")
        scaling["original_max_seq_len"] = original
    return theta, RopeScaling(**scaling)


def config_to_hf(config: Config) -> dict[str, Any]:
    """Config -> Hugging Face's config.json of class gpt2, llama, mistral or qwen2, for transformers 4 and 5.

    Raises UnsupportedModelError for a mixture that none of these classes computes.
    """
    c = config
    common = {
        "vocab_size": c.vocab_size,
        "tie_word_embeddings": c.tie_embeddings,
        # The classes have defaults for these, which would be tokens of another vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
    }
    biases = (c.attn_bias, c.attn_out_bias, c.mlp_bias)
    plain_heads = c.n_kv_heads == c.n_heads and c.n_heads * c.head_dim == c.d_model
    ungated = c.mlp in ("gelu_tanh", "gelu")
    is_gpt2 = (c.norm, c.position) == ("layer", "learned") and ungated and all(biases) and plain_heads
    if is_gpt2 and not c.head_bias:
        return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"} | common | _to_gpt2(c)
    if not c.head_bias and (c.norm, c.position, c.mlp) == ("rms", "rope", "swiglu"):
        if c.attn_bias == c.attn_out_bias and c.d_model % c.n_heads == 0:
            own = {"attention_bias": c.attn_bias, "mlp_bias": c.mlp_bias}
            return (
                {"architectures": ["LlamaForCausalLM"], "model_type": "llama"} | common | own | _to_llama(c)
            )
        if not any(biases):  # LlamaConfig refuses these widths, MistralConfig does not
            window = {"sliding_window": None}
            return (
                {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
                | common
                | window
                | _to_llama(c)
            )
        if biases == (True, False, False):
            return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"} | common | _to_llama(c)
    fields = ("norm", "position", "mlp", "attn_bias", "attn_out_bias", "mlp_bias", "head_bias", "n_heads")
    mixture = ", ".join(
        f"{name} {getattr(c, name)!r}" for name in (*fields, "n_kv_heads", "head_dim", "d_model")
    )
    raise UnsupportedModelError(
        f"no class of transformers (gpt2, llama, mistral, qwen2) computes {mixture}; save as .npz"
    )


def _to_gpt2(c: Config) -> dict[str, Any]:
    return {
        "n_positions": c.max_seq_len,
        "n_embd": c.d_model,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_inner": c.d_ff,
        "activation_function": "gelu" if c.mlp == "gelu" else "gelu_new",
        "layer_norm_epsilon": c.norm_eps,
    }


def _to_llama(c: Config) -> dict[str, Any]:
    scaling: dict[str, Any] | None = None
    if c.rope_scaling is not None:
        s = c.rope_scaling
        scaling = {"rope_type": s.rope_type, "factor": s.factor}
        if s.rope_type == "llama3":
            scaling |= {
                "low_freq_factor": s.low_freq_factor,
                "high_freq_factor": s.high_freq_factor,
                "original_max_position_embeddings": s.original_max_seq_len,
            }
    return {
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": c.max_seq_len,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,  # transformers 4
        "rope_scaling": None if scaling is None else {"type": scaling["rope_type"], **scaling},
        "rope_parameters": {"rope_theta": c.rope_theta, "rope_type": "default", **(scaling or {})},  # 5
    }
