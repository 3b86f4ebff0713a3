"""GPT-2 and Llama in jitted JAX, as people port them, with one thing wrong where ``fault`` names it.

Weights have transformers' names and layout, ``c`` is its config.json. ids and mask are (b, t), the mask True
on real tokens. ``keep(name, x) -> x`` is told every trace point.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .ports_numpy import rope_frequencies, within

Weights = Mapping[str, jax.Array]
Keep = Callable[[str, jax.Array], jax.Array]
Given = Mapping[str, Any]


class Port:
    """A model of these weights; ``fault`` None is the right one."""

    def __init__(self, state: Mapping[str, np.ndarray], c: Given, fault: str | None = None) -> None:
        dtype = jnp.bfloat16 if fault == "bfloat16" else jnp.float32
        self.weights = {name: jnp.asarray(x, dtype) for name, x in state.items()}

        def logits(w: Weights, ids: jax.Array, mask: jax.Array) -> jax.Array:
            return self.run(w, ids, mask, c, fault, lambda name, x: x)

        def trace(w: Weights, ids: jax.Array, mask: jax.Array) -> OrderedDict[str, jax.Array]:
            points: OrderedDict[str, jax.Array] = OrderedDict()  # a dict would come back from jit sorted

            def keep(name: str, x: jax.Array) -> jax.Array:
                points[name] = x
                return x

            self.run(w, ids, mask, c, fault, keep)
            return points

        self._logits, self._trace = jax.jit(logits), jax.jit(trace)

    def logits(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """(b, t, n)"""
        mask = np.ones(ids.shape, dtype=bool) if mask is None else mask
        return np.asarray(self._logits(self.weights, ids, mask), dtype=np.float32)

    def trace(self, ids: np.ndarray, mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Trace point -> its value."""
        mask = np.ones(ids.shape, dtype=bool) if mask is None else mask
        points = self._trace(self.weights, ids, mask)
        return {name: np.asarray(x, dtype=np.float32) for name, x in points.items()}

    def run(
        self,
        w: Weights,
        ids: jax.Array,
        mask: jax.Array,
        c: Given,
        fault: str | None,
        keep: Keep,
    ) -> jax.Array:
        raise NotImplementedError


class GPT2(Port):
    def run(
        self,
        w: Weights,
        ids: jax.Array,
        mask: jax.Array,
        c: Given,
        fault: str | None,
        keep: Keep,
    ) -> jax.Array:
        w = within(w, "transformer.")
        x = w["wte.weight"][ids]
        if fault == "embedding times sqrt(d)":
            x = x * math.sqrt(c["n_embd"])
        at = jnp.arange(ids.shape[1])[None] if fault == "positions from the first column" else counted(mask)
        x = keep("embed", x + w["wpe.weight"][at])

        def norm(x: jax.Array, name: str) -> jax.Array:
            weight, eps = w[f"{name}.weight"], 1e-5 if fault == "eps 1e-5" else c["layer_norm_epsilon"]
            if fault == "norm weight plus 1":
                weight = 1.0 + weight
            y = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + eps)
            return y * weight + w[f"{name}.bias"]

        def conv1d(x: jax.Array, name: str) -> jax.Array:
            y = x @ w[f"{name}.weight"]
            return y if fault == "out bias dropped" and "attn.c_proj" in name else y + w[f"{name}.bias"]

        for i in range(c["n_layer"] - (fault == "last layer dropped")):
            record, block = named(keep, f"blocks.{i}"), f"h.{i}"
            a = record("attn_norm", norm(x, f"{block}.ln_1"))
            q, k, v = jnp.split(conv1d(a, f"{block}.attn.c_attn"), 3, axis=-1)
            q, k, v = record("attn.q", q), record("attn.k", k), record("attn.v", v)
            q, k, v = (split_heads(part, c["n_head"]) for part in (q, k, v))
            out = record("attn.out", conv1d(attention(q, k, v, mask, fault, record), f"{block}.attn.c_proj"))
            x = record("attn_residual", x + out)
            m = record("mlp_norm", norm(x, f"{block}.ln_2"))
            up = record("mlp.up", conv1d(m, f"{block}.mlp.c_fc"))
            approximate = c["activation_function"] != "gelu"
            hidden = jax.nn.silu(up) if fault == "silu" else jax.nn.gelu(up, approximate=approximate)
            record("mlp.hidden", hidden)
            out = record("mlp.out", conv1d(hidden, f"{block}.mlp.c_proj"))
            x = record("residual", x + out)
        x = keep("final_norm", norm(x, "ln_f"))
        head = w["wte.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        return keep("logits", x @ head.T)


class Llama(Port):
    def run(
        self,
        w: Weights,
        ids: jax.Array,
        mask: jax.Array,
        c: Given,
        fault: str | None,
        keep: Keep,
    ) -> jax.Array:
        w = within(w, "model.")
        x = keep("embed", w["embed_tokens.weight"][ids])
        frequencies = jnp.asarray(rope_frequencies(c, fault), jnp.float32)
        angles = counted(mask)[:, None, :, None] * frequencies
        cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)

        def norm(x: jax.Array, name: str) -> jax.Array:
            wide = x.astype(jnp.float32)
            y = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + c["rms_norm_eps"])
            return y.astype(x.dtype) * w[f"{name}.weight"]

        def linear(x: jax.Array, name: str) -> jax.Array:
            y, bias = x @ w[f"{name}.weight"].T, w.get(f"{name}.bias")
            left_out = fault == "out bias dropped" and name.endswith("o_proj")
            return y if bias is None or left_out else y + bias

        layers = list(range(c["num_hidden_layers"]))
        if fault == "middle layer dropped":
            layers.pop(1)
        for i, layer in enumerate(layers):
            record, block = named(keep, f"blocks.{i}"), f"layers.{layer}"
            a = record("attn_norm", norm(x, f"{block}.input_layernorm"))
            q, k, v = (linear(a, f"{block}.self_attn.{name}_proj") for name in "qkv")
            q, k, v = record("attn.q", q), record("attn.k", k), record("attn.v", v)
            q = rotate(split_heads(q, c["num_attention_heads"]), cos, sin)
            k, v = (split_heads(part, c["num_key_value_heads"]) for part in (k, v))
            k = k if fault == "k not rotated" else rotate(k, cos, sin)
            q, k = record("attn.q_rotated", q), record("attn.k_rotated", k)
            out = record(
                "attn.out", linear(attention(q, k, v, mask, fault, record), f"{block}.self_attn.o_proj")
            )
            x = record("attn_residual", out if fault == "no attention residual" else x + out)
            m = record("mlp_norm", norm(x, f"{block}.post_attention_layernorm"))
            gate = record("mlp.gate", linear(m, f"{block}.mlp.gate_proj"))
            up = record("mlp.up", linear(m, f"{block}.mlp.up_proj"))
            swapped = fault == "gate and up swapped"
            hidden = record("mlp.hidden", gate * jax.nn.silu(up) if swapped else jax.nn.silu(gate) * up)
            out = record("mlp.out", linear(hidden, f"{block}.mlp.down_proj"))
            x = record("residual", x + out)
        if fault != "no final norm":
            x = norm(x, "norm")
        keep("final_norm", x)
        head = w["embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        return keep("logits", x @ head.T)


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, fault: str | None, keep: Keep
) -> jax.Array:
    """q (b, h, t, hd), k and v (b, g, t, hd) -> (b, t, h*hd)."""
    b, h, t, hd = q.shape
    groups = h // k.shape[1]
    if fault == "tiled kv heads":
        k, v = (jnp.tile(x, (1, groups, 1, 1)) for x in (k, v))
    else:
        k, v = (jnp.repeat(x, groups, axis=1) for x in (k, v))
    scale = 1.0 / math.sqrt(h * hd if fault == "scaled by 1/sqrt(d)" else hd)
    scores = keep("attn.scores", jnp.einsum("bhid,bhjd->bhij", q, k) * scale)
    visible = jnp.tril(jnp.ones((t, t), dtype=bool), -1 if fault == "mask without itself" else 0)
    if fault == "no causal mask":
        visible = jnp.ones_like(visible)
    visible = visible if fault == "padding seen" else visible & mask[:, None, None, :]
    hidden = jnp.where(visible, scores, jnp.finfo(scores.dtype).min)
    if fault == "mask added":
        hidden = scores + visible
    if fault == "softmax in bfloat16":
        hidden = jnp.where(visible, scores, -1e9).astype(jnp.bfloat16)
    weights = keep("attn.weights", jax.nn.softmax(hidden, axis=-1).astype(scores.dtype))
    return keep("attn.heads", jnp.einsum("bhij,bhjd->bihd", weights, v).reshape(b, t, h * hd))


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def counted(mask: jax.Array) -> jax.Array:
    """Positions (b, t), counting each row's real tokens from 0."""
    return jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).swapaxes(1, 2)


def named(keep: Keep, prefix: str) -> Keep:
    return lambda name, x: keep(f"{prefix}.{name}", x)
