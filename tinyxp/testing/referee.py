"""A second decoder, written for nothing but to be right: one token, one head and one number at a time.

It shares no code with ``ops`` and ``model`` and computes in float64 on NumPy and ``math``; nothing in it is
vectorised over tokens, masked or cached, so what those can do wrong cannot happen here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tinyxp.config import MLPS, Config
from tinyxp.testing.laws.positions import turned

Arrays = Mapping[str, np.ndarray]


def logits(config: Config, arrays: Arrays, ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """The logits (t, n) of one row without padding, in float64."""
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
                q, k = turned(q, position, config), turned(k, position, config)
            seen.append((k, v))
            stream[now] = stream[now] + affine(attend(q, seen, config), w, "attn.o")
            x = norm(stream[now], w, "mlp_norm", config.norm_eps)
            if MLPS[config.mlp].gated:
                hidden = np.array([u / (1.0 + math.exp(-u)) for u in affine(x, w, "mlp.gate")])
                hidden = hidden * affine(x, w, "mlp.up")
            else:
                hidden = np.array([GELUS[config.mlp](u) for u in affine(x, w, "mlp.up")])
            stream[now] = stream[now] + affine(hidden, w, "mlp.down")
    table = arrays["embed.weight" if config.tie_embeddings else "head.weight"]
    return np.stack([table @ norm(x, arrays, "final_norm", config.norm_eps) for x in stream])


def attend(q: np.ndarray, seen: list[tuple[np.ndarray, np.ndarray]], config: Config) -> np.ndarray:
    """What one token's heads read from all that it sees. q (h, hd) -> (h*hd,)."""
    heads = []
    for head in range(config.n_heads):
        shared = head * config.n_kv_heads // config.n_heads
        scores = [math.fsum(q[head] * k[shared]) / math.sqrt(config.head_dim) for k, _ in seen]
        raised = [math.exp(score - max(scores)) for score in scores]
        total = math.fsum(raised)
        heads.append(sum(r / total * v[shared] for r, (_, v) in zip(raised, seen, strict=True)))
    return np.concatenate(heads)


def affine(x: np.ndarray, w: Arrays, name: str) -> np.ndarray:
    """W x + b. x (i,) -> (o,)."""
    y: np.ndarray = w[f"{name}.weight"] @ x
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


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
GELUS: dict[str, Callable[[float], float]] = {
    "gelu": lambda u: u / 2.0 * math.erfc(-u / math.sqrt(2.0)),
    "gelu_tanh": lambda u: u / (1.0 + math.exp(-2.0 * math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3))),
}
