"""The configuration of a decoder: plain data that decides every shape and every block choice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from tinyxp.checks import as_flag, as_integer, as_positive


class Norm(NamedTuple):
    """One kind of norm: the kernel that computes it, and the parameters that the kernel takes."""

    kernel: str
    parts: tuple[str, ...]


class Mlp(NamedTuple):
    """One kind of MLP: W_down act(W_up x) or, gated, W_down (act(W_gate x) * W_up x)."""

    activation: str  # the kernel that computes act
    gated: bool = False


NORMS = {"rms": Norm("rms_norm", ("weight",)), "layer": Norm("layer_norm", ("weight", "bias"))}
POSITIONS = ("rope", "learned")
MLPS = {
    "swiglu": Mlp("silu", gated=True),
    "gelu_tanh": Mlp("gelu_tanh"),
    "gelu": Mlp("gelu"),
    "relu2": Mlp("relu2"),
}


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for contexts longer than the original training context.

    ``linear`` divides every frequency by ``factor`` (kaiokendev, 2023). ``llama3`` divides those of long
    wavelengths by ``factor``, keeps those of short ones and blends in between. Long and short are
    ``original_max_seq_len / low_freq_factor`` and ``/ high_freq_factor`` (Llama 3.1, 2024).
    """

    rope_type: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_seq_len: int = 8192

    def __post_init__(self) -> None:
        if self.rope_type not in ("linear", "llama3"):
            raise ValueError(
                f"rope_scaling has rope_type {self.rope_type!r}; known are 'default', 'linear' and 'llama3'"
            )
        for name in ("factor", "low_freq_factor", "high_freq_factor"):
            _set(self, name, as_positive(f"rope_scaling {name}", getattr(self, name)))
        length = as_integer("rope_scaling original_max_seq_len", self.original_max_seq_len, low=1)
        _set(self, "original_max_seq_len", length)
        if self.rope_type == "llama3" and self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"rope_scaling high_freq_factor is {self.high_freq_factor}; "
                f"it must exceed low_freq_factor, {self.low_freq_factor}"
            )

    @classmethod
    def parse(cls, value: RopeScaling | Mapping[str, Any] | None) -> RopeScaling | None:
        """Return a RopeScaling from Hugging Face's dict (``rope_type`` or ``type``) or None."""
        if value is None or isinstance(value, RopeScaling):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"rope_scaling is {value!r}; it must be a mapping, a RopeScaling or None")
        given = {k: v for k, v in value.items() if v is not None and k != "rope_theta"}
        older = given.pop("type", None)
        kind = given.pop("rope_type", older)
        if kind == "default":
            return None
        if "original_max_position_embeddings" in given:
            given["original_max_seq_len"] = given.pop("original_max_position_embeddings")
        unknown = sorted(map(str, given.keys() - {f.name for f in fields(cls)}))
        if unknown:
            raise ValueError(f"rope_scaling has unknown keys {unknown}")
        required = ["factor"]
        if kind == "llama3":
            required += ["low_freq_factor", "high_freq_factor", "original_max_seq_len"]
        missing = [name for name in required if name not in given]
        if kind in ("linear", "llama3") and missing:
            raise ValueError(f"rope_scaling of type {kind!r} lacks {missing}")
        return cls(rope_type=str(kind), **{"factor": 1.0, **given})


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder-only transformer: the GPT-2 or Llama family, or any mixture of their parts.

    The defaults are a Llama-family model of 26,784 parameters.

    Sizes: ``vocab_size`` (n); ``n_layers``; ``d_model`` (d); ``n_heads`` query heads (h) on ``n_kv_heads``
    key/value heads (g), which must divide them; ``head_dim`` (hd; ``None`` means d_model / n_heads);
    ``d_ff`` (f); ``max_seq_len`` positions.

    Choices: ``norm`` "rms" or "layer", with ``norm_eps``; ``position`` "rope" or "learned"; ``mlp`` "swiglu",
    "gelu_tanh", "gelu" or "relu2"; ``rope_theta`` and ``rope_scaling`` (a RopeScaling, Hugging Face's dict,
    or None); ``tie_embeddings`` (the head is the embedding).

    Biases: ``attn_bias`` (of q, k and v), ``attn_out_bias``, ``mlp_bias``, ``head_bias``.

    Raise ValueError naming the field for anything else. Hashable, so static under every jit.
    """

    vocab_size: int = 128
    n_layers: int = 2
    d_model: int = 32
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = None  # type: ignore[assignment]  # an int from __post_init__ on
    d_ff: int = 64
    max_seq_len: int = 64
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    norm: str = "rms"
    position: str = "rope"
    mlp: str = "swiglu"
    attn_bias: bool = False
    attn_out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "max_seq_len"):
            _set(self, name, as_integer(name, getattr(self, name), low=1))
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads is {self.n_kv_heads}; it must divide n_heads, {self.n_heads}")
        if self.head_dim is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"d_model is {self.d_model}; without a head_dim, n_heads, {self.n_heads}, must divide it"
                )
            _set(self, "head_dim", self.d_model // self.n_heads)
        _set(self, "head_dim", as_integer("head_dim", self.head_dim, low=1))
        for name in ("rope_theta", "norm_eps"):
            _set(self, name, as_positive(name, getattr(self, name)))
        for name in ("tie_embeddings", "attn_bias", "attn_out_bias", "mlp_bias", "head_bias"):
            as_flag(name, getattr(self, name))
        for name, known in (("norm", NORMS), ("position", POSITIONS), ("mlp", MLPS)):
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; known are {', '.join(map(repr, known))}"
                )
        _set(self, "rope_scaling", RopeScaling.parse(self.rope_scaling))
        if self.position == "rope" and self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions need an even one")
        if self.position == "learned" and self.rope_scaling is not None:
            raise ValueError("rope_scaling is given, but position is 'learned'")

    @classmethod
    def preset(cls, name: str) -> Config:
        """Return the config of a published model: tiny, gpt2, gpt2-untied, smollm2-135m, qwen2-0.5b, book."""
        if not isinstance(name, str) or name not in PRESETS:
            raise ValueError(f"preset is {name!r}; known are {', '.join(sorted(PRESETS))}")
        return cls(**PRESETS[name])

    @classmethod
    def from_hf(cls, source: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
        """Return a Config from Hugging Face's config.json: its dict, the file, or its folder.

        Raise UnsupportedModelError naming the key that requests what this decoder does not compute,
        CheckpointError for a file that is not a config, ValueError for contradictory values.
        """
        from tinyxp.formats.hf_config import config_from_hf

        return config_from_hf(source)

    def to_hf(self) -> dict[str, Any]:
        """Return Hugging Face's config.json for this model; UnsupportedModelError if no class there fits."""
        from tinyxp.formats.hf_config import config_to_hf

        return config_to_hf(self)


def _set(record: Config | RopeScaling, name: str, value: Any) -> None:
    """Set a checked value, such as an int for a NumPy integer, in a frozen record."""
    object.__setattr__(record, name, value)


GPT2: dict[str, Any] = {
    "norm": "layer",
    "position": "learned",
    "mlp": "gelu_tanh",
    "attn_bias": True,
    "attn_out_bias": True,
    "mlp_bias": True,
    "tie_embeddings": True,
}

_GPT2_SMALL: dict[str, Any] = GPT2 | {
    "vocab_size": 50257,
    "n_layers": 12,
    "d_model": 768,
    "n_heads": 12,
    "n_kv_heads": 12,
    "d_ff": 3072,
    "max_seq_len": 1024,
}

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "gpt2": _GPT2_SMALL,
    "gpt2-untied": _GPT2_SMALL | {"tie_embeddings": False},
    "smollm2-135m": {
        "vocab_size": 49152,
        "n_layers": 30,
        "d_model": 576,
        "n_heads": 9,
        "n_kv_heads": 3,
        "d_ff": 1536,
        "max_seq_len": 8192,
        "rope_theta": 100000.0,
        "tie_embeddings": True,
    },
    "qwen2-0.5b": {
        "vocab_size": 151936,
        "n_layers": 24,
        "d_model": 896,
        "n_heads": 14,
        "n_kv_heads": 2,
        "d_ff": 4864,
        "max_seq_len": 32768,
        "rope_theta": 1000000.0,
        "norm_eps": 1e-6,
        "tie_embeddings": True,
        "attn_bias": True,
    },
    "book": GPT2
    | {
        "vocab_size": 8981,
        "n_layers": 4,
        "d_model": 128,
        "n_heads": 4,
        "n_kv_heads": 4,
        "d_ff": 512,
        "max_seq_len": 128,
    },
}
