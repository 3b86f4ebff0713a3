"""A second decoder, written only to be correct: one token, one head and one number at a time.

It shares no code with ``ops``, ``model`` and the laws, and computes in float64 with NumPy and ``math``.
Nothing in it is vectorised over tokens, masked or cached, so faults of those kinds cannot occur here.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tinyxp.config import Config

Arrays = Mapping[str, np.ndarray]


def logits(config: Config, arrays: Arrays, ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """Return the logits (t, n) of one row without padding, in float64."""
    norm = NORMS[config.norm]
    stream = [np.array(arrays["embed.weight"][token], dtype=np.float64) for token in ids]
    if config.position == "learned":
        stream = [x + arrays["pos_embed.weight"][p] for x, p in zip(stream, positions, strict=True)]
    for i in range(config.n_layers):
        w = {name.removeprefix(f"blocks.{i}."): x for name, x in arrays.items()}
        seen: list[tuple[np.ndarray, np.ndarray]] = []
        for now, position in enumerate(positions):
            x = norm(stream[now], w, "attn_norm", config.norm_eps)
            q, k, v = (affine(x, w, f"attn.{name}").reshape(-1, config.head_dim) for name in "qkv")
            if config.position == "rope":
                q, k = rotate(q, position, config), rotate(k, position, config)
            seen.append((k, v))
            stream[now] = stream[now] + affine(attend(q, seen, config), w, "attn.o")
            x = norm(stream[now], w, "mlp_norm", config.norm_eps)
            is_gated = "mlp.gate.weight" in w
            bent = [ACTIVATIONS[config.mlp](u) for u in affine(x, w, "mlp.gate" if is_gated else "mlp.up")]
            hidden = np.array(bent) * affine(x, w, "mlp.up") if is_gated else np.array(bent)
            stream[now] = stream[now] + affine(hidden, w, "mlp.down")
    table = arrays["embed.weight" if config.tie_embeddings else "head.weight"]
    bias = arrays.get("head.bias", 0.0)
    return np.stack([table @ norm(x, arrays, "final_norm", config.norm_eps) + bias for x in stream])


def attend(q: np.ndarray, seen: list[tuple[np.ndarray, np.ndarray]], config: Config) -> np.ndarray:
    """Return what one token's heads read from the keys and values that it sees. q (h, hd) -> (h*hd,)."""
    heads = []
    for head in range(config.n_heads):
        shared = head * config.n_kv_heads // config.n_heads
        scores = [math.fsum(q[head] * k[shared]) / math.sqrt(config.head_dim) for k, _ in seen]
        raised = [math.exp(score - max(scores)) for score in scores]
        total = math.fsum(raised)
        heads.append(sum(r / total * v[shared] for r, (_, v) in zip(raised, seen, strict=True)))
    return np.concatenate(heads)


def affine(x: np.ndarray, w: Arrays, name: str) -> np.ndarray:
    """Return W x + b. x (i,) -> (o,)."""
    y: np.ndarray = w[f"{name}.weight"] @ x
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def rotate(x: np.ndarray, position: int, config: Config) -> np.ndarray:
    """Return x (..., hd) as complex numbers x[i] + j x[i + hd/2], each times e^(j angle)."""
    half = config.head_dim // 2
    turn = np.asarray([cmath.exp(1j * position * rope_frequency(i, config)) for i in range(half)])
    z = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([z.real, z.imag], axis=-1)


def rope_frequency(i: int, config: Config) -> float:
    """Return the radians per position of pair i, by the wavelengths of the papers."""
    plain: float = 1.0 / config.rope_theta ** (2 * i / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    slow = plain / scaling.factor
    if scaling.rope_type == "linear":
        return slow
    wavelength, context = 2.0 * math.pi / plain, scaling.original_max_seq_len
    longest, shortest = context / scaling.low_freq_factor, context / scaling.high_freq_factor
    if wavelength > longest:
        return slow
    if wavelength < shortest:
        return plain
    smooth = (context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1.0 - smooth) * slow + smooth * plain


def layer_norm(x: np.ndarray, w: Arrays, name: str, eps: float) -> np.ndarray:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((u - mean) ** 2 for u in x) / len(x)
    return (x - mean) / math.sqrt(variance + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms_norm(x: np.ndarray, w: Arrays, name: str, eps: float) -> np.ndarray:
    return x / math.sqrt(math.fsum(u * u for u in x) / len(x) + eps) * w[f"{name}.weight"]


NORMS: dict[str, Callable[[np.ndarray, Arrays, str, float], np.ndarray]] = {
    "layer": layer_norm,
    "rms": rms_norm,
}
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "swiglu": lambda u: u / (1.0 + math.exp(-u)),
    "gelu": lambda u: u / 2.0 * math.erfc(-u / math.sqrt(2.0)),
    "gelu_tanh": lambda u: u / (1.0 + math.exp(-2.0 * math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3))),
    "relu2": lambda u: max(u, 0.0) ** 2,
}
