"""GPT-2 and Llama in NumPy functions, as people port them, with one thing wrong where ``fault`` names it.

Weights have transformers' names and layout, ``c`` is its config.json. ids and mask are (b, t), the mask True
on real tokens. ``keep(name, x) -> x`` is told every trace point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

State = Mapping[str, np.ndarray]
Keep = Callable[[str, np.ndarray], np.ndarray]


class Port:
    """A model of these weights; ``fault`` None is the right one."""

    def __init__(self, state: State, config: Mapping[str, Any], fault: str | None = None) -> None:
        self.state, self.config, self.fault = state, config, fault

    def logits(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """(b, t, n)"""
        return self.run(ids, mask, lambda name, x: x)

    def trace(self, ids: np.ndarray, mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Trace point -> its value."""
        points: dict[str, np.ndarray] = {}

        def keep(name: str, x: np.ndarray) -> np.ndarray:
            points[name] = x
            return x

        self.run(ids, mask, keep)
        return points

    def run(self, ids: np.ndarray, mask: np.ndarray | None, keep: Keep) -> np.ndarray:
        raise NotImplementedError


class GPT2(Port):
    def run(self, ids: np.ndarray, mask: np.ndarray | None, keep: Keep) -> np.ndarray:
        w, c, fault = within(self.state, "transformer."), self.config, self.fault
        if fault == "extra bos":
            ids, mask = with_bos(ids, mask)
        x = w["wte.weight"][ids]
        if fault != "no position embedding":
            x = x + w["wpe.weight"][positions(ids, mask, fault)]
        keep("embed", x)
        layers = list(range(c["n_layer"]))
        if fault == "middle layer dropped":
            layers.pop(1)
        for i, layer in enumerate(layers):
            x = gpt2_block(within(w, f"h.{layer}."), x, mask, c, fault, named(keep, f"blocks.{i}"))
        if fault != "no final norm":
            x = layer_norm(x, w, "ln_f", c, fault)
        keep("final_norm", x)
        tied = c["tie_word_embeddings"] or fault == "head tied"
        return keep("logits", x @ (w["wte.weight"] if tied else w["lm_head.weight"]).T)


def gpt2_block(
    w: State, x: np.ndarray, mask: np.ndarray | None, c: Mapping[str, Any], fault: str | None, keep: Keep
) -> np.ndarray:
    a = keep("attn_norm", layer_norm(x, w, "ln_1", c, fault))
    q, k, v = np.split(conv1d(a, w, "attn.c_attn"), 3, axis=-1)
    q, k, v = keep("attn.q", q), keep("attn.k", k), keep("attn.v", v)
    q, k, v = (split_heads(part, c["n_head"]) for part in (q, k, v))
    heads = attention(q, k, v, mask, c["n_embd"], fault, keep)
    if fault == "o transposed":
        out = heads @ w["attn.c_proj.weight"].T + w["attn.c_proj.bias"]
    else:
        out = conv1d(heads, w, "attn.c_proj")
    keep("attn.out", out)
    x = keep("attn_residual", out if fault == "no attention residual" else x + out)

    m = keep("mlp_norm", layer_norm(x, w, "ln_2", c, fault))
    up = keep("mlp.up", m @ w["mlp.c_fc.weight"] if fault == "mlp bias dropped" else conv1d(m, w, "mlp.c_fc"))
    if fault == "relu":
        hidden = np.maximum(up, 0.0)
    elif c["activation_function"] == "gelu" and fault != "tanh gelu":
        hidden = gelu_erf(up)
    else:
        hidden = gelu_tanh(up)
    keep("mlp.hidden", hidden)
    out = keep("mlp.out", conv1d(hidden, w, "mlp.c_proj"))
    return keep("residual", x + out)


class Llama(Port):
    def run(self, ids: np.ndarray, mask: np.ndarray | None, keep: Keep) -> np.ndarray:
        w, c, fault = within(self.state, "model."), self.config, self.fault
        table = w["embed_tokens.weight"]
        if fault == "vocabulary shifted":
            table = np.roll(table, 1, axis=0)
        x = keep("embed", table[ids])
        angles = positions(ids, mask, fault)[:, None, :, None] * rope_frequencies(c, fault)  # (b, 1, t, hd/2)
        if fault == "rotated backwards":
            angles = -angles
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        layers = list(range(c["num_hidden_layers"]))
        if fault == "layer run twice":
            layers.insert(1, 1)
        for i, layer in enumerate(layers):
            part = within(w, f"layers.{layer}.")
            if fault == "o transposed in block 1" and layer == 1:
                part["self_attn.o_proj.weight"] = part["self_attn.o_proj.weight"].T
            x = llama_block(part, x, mask, cos, sin, c, fault, named(keep, f"blocks.{i}"))
        x = keep("final_norm", rms_norm(x, w["norm.weight"], c, fault))
        head = table if c["tie_word_embeddings"] else w["lm_head.weight"]
        if fault == "head not tied":  # left as it was drawn
            head = np.random.default_rng(7).normal(0.0, 0.02, head.shape).astype(np.float32)
        return keep("logits", x @ head.T)


def llama_block(
    w: dict[str, np.ndarray],
    x: np.ndarray,
    mask: np.ndarray | None,
    cos: np.ndarray,
    sin: np.ndarray,
    c: Mapping[str, Any],
    fault: str | None,
    keep: Keep,
) -> np.ndarray:
    h, g = c["num_attention_heads"], c["num_key_value_heads"]
    if fault == "q rows interleaved":
        w["self_attn.q_proj.weight"] = interleaved(w["self_attn.q_proj.weight"], h)
    if fault == "k rows interleaved":
        w["self_attn.k_proj.weight"] = interleaved(w["self_attn.k_proj.weight"], g)
    if fault == "mlp bias dropped":
        w = {name: part for name, part in w.items() if not (name.startswith("mlp") and name.endswith("bias"))}
    first, second = w["input_layernorm.weight"], w["post_attention_layernorm.weight"]
    is_post_norm = fault == "post-norm"

    a = x if is_post_norm else keep("attn_norm", rms_norm(x, first, c, fault))
    q, k, v = (linear(a, w, f"self_attn.{name}_proj") for name in "qkv")
    q, k, v = keep("attn.q", q), keep("attn.k", k), keep("attn.v", v)
    q, k = rotate(split_heads(q, h), cos, sin), rotate(split_heads(k, g), cos, sin)
    q, k = keep("attn.q_rotated", q), keep("attn.k_rotated", k)
    heads = attention(q, k, split_heads(v, g), mask, c["hidden_size"], fault, keep)
    out = keep("attn.out", linear(heads, w, "self_attn.o_proj"))
    x = keep("attn_residual", x + out)
    if is_post_norm:
        x = keep("attn_norm", rms_norm(x, first, c, fault))

    m = x if is_post_norm else keep("mlp_norm", rms_norm(x, second, c, fault))
    gate = keep("mlp.gate", linear(m, w, "mlp.gate_proj"))
    up = keep("mlp.up", linear(m, w, "mlp.up_proj"))
    hidden = keep("mlp.hidden", (np.maximum(gate, 0.0) if fault == "relu" else silu(gate)) * up)
    out = keep("mlp.out", linear(hidden, w, "mlp.down_proj"))
    x = keep("residual", x + out)
    return keep("mlp_norm", rms_norm(x, second, c, fault)) if is_post_norm else x


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    d: int,
    fault: str | None,
    keep: Keep,
) -> np.ndarray:
    """q (b, h, t, hd), k and v (b, g, t, hd) -> (b, t, h*hd)."""
    b, h, t, hd = q.shape
    k, v = (np.repeat(x, h // x.shape[1], axis=1) for x in (k, v))
    scale = {
        "unscaled scores": 1.0,
        "scaled by 1/hd": 1.0 / hd,
        "scaled by 1/sqrt(d/h)": 1.0 / math.sqrt(d // h),
    }.get(fault or "", 1.0 / math.sqrt(hd))
    scores = keep("attn.scores", q @ k.swapaxes(-1, -2) * scale)
    diagonal = {"mask one ahead": 1, "mask without itself": -1}.get(fault or "", 0)
    visible = np.tril(np.ones((t, t), dtype=bool), diagonal)[None, None]
    if mask is not None:
        visible = visible & mask[:, None, None, :]
    if fault == "mask inverted":
        visible = ~visible
    lowest = np.finfo(np.float32).min
    if fault == "mask after softmax":
        weights = softmax(scores) * visible
    elif fault == "softmax in float16":
        weights = softmax(np.where(visible, scores, -1e4).astype(np.float16)).astype(np.float32)
    else:
        weights = softmax(np.where(visible, scores, lowest))
    keep("attn.weights", weights)
    return keep("attn.heads", (weights @ v).swapaxes(1, 2).reshape(b, t, h * hd))


def rope_frequencies(c: Mapping[str, Any], fault: str | None) -> np.ndarray:
    """(hd/2,) in float64, in radians per position."""
    rope = c.get("rope_parameters") or {"rope_theta": c.get("rope_theta", 10000.0)}
    hd = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    theta = {"theta 10000": 10000.0, "theta 500000": 500000.0}.get(fault or "", rope["rope_theta"])
    frequencies = 1.0 / theta ** (np.arange(0, hd, 2) / hd)
    kind = rope.get("rope_type", "default")
    if kind == "default" or fault == "rope scaling left out":
        return frequencies
    slow = frequencies / rope["factor"]
    if kind == "linear":
        return slow
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequencies / (2.0 * np.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return share * frequencies + (1.0 - share) * slow


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def interleaved(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head in llama.cpp's order, 0, hd/2, 1, hd/2 + 1, ..."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def positions(ids: np.ndarray, mask: np.ndarray | None, fault: str | None) -> np.ndarray:
    """(b or 1, t)"""
    if mask is None or fault == "positions from the first column":
        counted = np.arange(ids.shape[1])[None]
    else:
        counted = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
    return counted + 1 if fault == "positions from 1" else counted


def with_bos(ids: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Id 1 in front, and one more column of mask."""
    ids = np.pad(ids, ((0, 0), (1, 0)), constant_values=1)
    return ids, None if mask is None else np.pad(mask, ((0, 0), (1, 0)), constant_values=True)


def layer_norm(x: np.ndarray, w: State, name: str, c: Mapping[str, Any], fault: str | None) -> np.ndarray:
    eps = c["layer_norm_epsilon"]
    centred = x if fault == "rms norm" else x - x.mean(axis=-1, keepdims=True)
    ddof = 1 if fault == "variance over n-1" else 0
    variance = (centred * centred).sum(axis=-1, keepdims=True) / (x.shape[-1] - ddof)
    root = np.sqrt(variance) + eps if fault == "eps outside the root" else np.sqrt(variance + eps)
    return centred / root * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms_norm(x: np.ndarray, weight: np.ndarray, c: Mapping[str, Any], fault: str | None) -> np.ndarray:
    eps = 1e-5 if fault == "eps 1e-5" else c["rms_norm_eps"]
    if fault == "norm weight plus 1":
        weight = 1.0 + weight
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    return x * (0.5 * (1.0 + np.tanh(0.5 * x)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return (0.5 * x * (1.0 + np.vectorize(math.erf)(x * math.sqrt(0.5)))).astype(x.dtype)


def linear(x: np.ndarray, w: State, name: str) -> np.ndarray:
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def conv1d(x: np.ndarray, w: State, name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).swapaxes(1, 2)


def within(w: State, prefix: str) -> dict[str, np.ndarray]:
    """The weights without their prefix; those of other blocks keep their names, which nobody asks for."""
    return {name.removeprefix(prefix): x for name, x in w.items()}


def named(keep: Keep, prefix: str) -> Keep:
    return lambda name, x: keep(f"{prefix}.{name}", x)
