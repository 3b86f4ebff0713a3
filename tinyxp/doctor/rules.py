"""Each point of a pass, computed from the points before it under the choices that people get wrong.

Only the points whose choices differ are computed here; all else is the model's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.config import MLPS
from tinyxp.doctor.choices import SCALES, F, Values
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.rotation import positions, turned
from tinyxp.model import join_heads, split_heads


def again(v: Values, kind: str, right: F) -> F:
    """The value of a point under the choices, given the right one."""
    rule = RULES.get(kind)
    if rule is None or not (rule[0] & v.choices.changed()):
        return right
    return rule[1](v, kind, right)


def norm(v: Values, kind: str, right: F) -> F:
    """The norm before attention, before the MLP, or the last one."""
    c = v.choices
    x = v.points["attn_residual" if kind == "mlp_norm" and not c.parallel else "input"]
    if kind == "final_norm" and c.final_norm == "twice":
        return normed(v, kind, normed(v, kind, x))
    if (kind == "final_norm" and c.final_norm == "missing") or (kind != "final_norm" and not c.norms):
        return x
    return normed(v, kind, x)


def normed(v: Values, kind: str, x: F) -> F:
    """x by the norm of that name."""
    c = v.choices
    digits = c.norm_dtype
    eps = v.config.norm_eps if c.eps is None else c.eps
    x = round_to(x, digits)
    if (c.norm or v.config.norm) == "layer":
        x = round_to(x - round_to(np.mean(x, axis=-1, keepdims=True), digits), digits)
    size = 1 if c.norm_sum else max(x.shape[-1] - c.ddof, 1)
    square = round_to(np.sum(round_to(x * x, digits), axis=-1, keepdims=True) / size, digits)
    root = np.sqrt(square + eps) if c.eps_place == "inside" else np.sqrt(square) + eps
    y = round_to(x / round_to(square + eps if c.eps_place == "no root" else root, digits), digits)
    w: Any = v.weight(f"{kind}.weight")
    w = w.astype(np.float64)
    w = {"w": w, "1 + w": 1.0 + w, "w - 1": w - 1.0, "1": np.ones_like(w)}[c.norm_weight]
    y = round_to(y * round_to(w, digits), digits)
    bias = v.weight(f"{kind}.bias")
    return y if bias is None or not c.norm_bias else round_to(y + bias, digits)


def split(v: Values, name: str) -> F:
    """q, k or v cut into heads. (b, t, heads*hd) -> (b, heads, t, hd)."""
    heads = v.config.n_heads if name == "q" else v.config.n_kv_heads
    x: Any = v.points[f"attn.{name}"]
    if v.choices.split == "reshape":
        b, t, width = x.shape
        return x.reshape(b, heads, t, width // heads)
    cut: F = split_heads(x, heads, xp=np)
    return cut


def rotated(v: Values, kind: str, right: F) -> F:
    name = kind[len("attn.")]
    return turned(v, split(v, name)) if name in v.choices.turned else split(v, name)


def of_query_heads(v: Values, x: F) -> F:
    """Keys or values (b, g, t, hd) for every query head (b, h, t, hd)."""
    times = v.config.n_heads // v.config.n_kv_heads
    if v.choices.groups == "next":
        return np.repeat(np.roll(x, -1, axis=1), times, axis=1)
    if v.choices.groups == "repeat":
        return np.repeat(x, times, axis=1)
    return (
        np.tile(x, (1, times, 1, 1))
        if v.choices.groups == "tile"
        else np.repeat(x[:, :1], v.config.n_heads, axis=1)
    )


def scores(v: Values, kind: str, right: F) -> F:
    rope = v.config.position == "rope"
    q, k = (v.points[f"attn.{name}_rotated"] if rope else split(v, name) for name in "qk")
    q, k = round_to(q, v.choices.product_dtype), round_to(k, v.choices.product_dtype)
    return q @ of_query_heads(v, k).swapaxes(-1, -2) * SCALES[v.choices.scale](v.config)


def visible(v: Values) -> F:
    """(b, 1, t, t) bool, as the choices say."""
    kind, t = v.choices.mask, v.batch.ids.shape[1]
    query, key = np.arange(t)[:, None], np.arange(t)[None, :]
    real = v.batch.real[:, None, None, :]
    sees = {"none": key >= 0, "strict": key < query, "ahead": key <= query + 1, "future": key >= query}
    causal: F = sees.get(kind, key <= query)[None, None]
    if kind == "inverted":
        return ~(causal & real)
    if kind == "padding ignored":
        return np.broadcast_to(causal, (len(real), 1, t, t))
    return causal & (~real if kind == "padding inverted" else real)


def weights(v: Values, kind: str, right: F) -> F:
    c, sees = v.choices, visible(v)
    x = v.points["attn.scores"]
    if c.mask == "added":
        x = x + sees
    elif c.mask != "after softmax":
        x = np.where(sees, x, c.fill)
    x = round_to(x, c.softmax_dtype)
    axis = c.softmax_axis
    e = round_to(np.exp(x - np.max(x, axis=axis, keepdims=True)), c.softmax_dtype)
    y = round_to(e / round_to(np.sum(e, axis=axis, keepdims=True), c.softmax_dtype), c.softmax_dtype)
    return np.where(sees, y, 0.0) if c.mask == "after softmax" else y


def heads(v: Values, kind: str, right: F) -> F:
    values = split(v, "v")
    if "v" in v.choices.turned:
        values = turned(v, values)
    digits = v.choices.product_dtype
    y: Any = round_to(v.points["attn.weights"], digits) @ of_query_heads(v, round_to(values, digits))
    if v.choices.join == "reshape":
        return y.reshape(right.shape)
    joined: F = join_heads(y, xp=np)
    return joined


def sigmoid(x: F) -> F:
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: ops.gelu(x, xp=np),
    "gelu_tanh": lambda x: ops.gelu_tanh(x, xp=np),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
    "relu squared": lambda x: np.maximum(x, 0.0) ** 2,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "none": lambda x: x,
}


def hidden(v: Values, kind: str, right: F) -> F:
    gated = MLPS[v.config.mlp].gated
    act = ACTIVATIONS[v.choices.activation or ("silu" if gated else v.config.mlp)]
    if not gated:
        return act(v.points["mlp.up"])
    gate, up = v.points["mlp.gate"], v.points["mlp.up"]
    ways = {
        "act(gate) up": lambda: act(gate) * up,
        "act(up) gate": lambda: act(up) * gate,
        "act(gate)": lambda: act(gate),
        "act(gate up)": lambda: act(gate * up),
        "act(gate) + up": lambda: act(gate) + up,
        "act(up)": lambda: act(up),
    }
    return ways[v.choices.gating]()


def embed(v: Values, kind: str, right: F) -> F:
    table: Any = v.weight("embed.weight")
    x = table[v.batch.ids].astype(np.float64) * v.choices.embed_scale
    rows = v.weight("pos_embed.weight") if v.config.position == "learned" else None
    if rows is not None and v.choices.learned:
        x = x + rows[np.clip(positions(v), 0, len(rows) - 1)]
    return x


def attn_residual(v: Values, kind: str, right: F) -> F:
    added = v.points["attn.out"]
    return added if v.choices.attn_adds == "nothing" else v.points["attn_norm"] + added


def residual(v: Values, kind: str, right: F) -> F:
    added = v.points["mlp.out"]
    return added if v.choices.mlp_adds == "nothing" else v.points["mlp_norm"] + added


def logits(v: Values, kind: str, right: F) -> F:
    c = v.choices
    y = right * c.logits_scale
    if c.logits.startswith("capped"):
        cap = float(c.logits.rpartition(" ")[2])
        return cap * np.tanh(y / cap)
    if c.logits == "logits":
        return y
    e = np.exp(y - np.max(y, axis=-1, keepdims=True))
    p = e / np.sum(e, axis=-1, keepdims=True)
    return p if c.logits == "softmax" else np.log(p)


_NORM = {"norm", "norm_weight", "norm_bias", "norm_sum", "eps", "eps_place", "ddof", "norm_dtype"}
_ROPE = {
    "pairing", "theta", "scaling", "exponent", "turn", "turned", "part", "times", "offset", "counted",
    "table_dtype", "angle_dtype", "split",
}  # fmt: skip
RULES: dict[str, tuple[set[str], Callable[[Values, str, F], F]]] = {
    "embed": ({"embed_scale", "learned", "offset", "counted"}, embed),
    "attn_norm": (_NORM | {"norms"}, norm),
    "attn.q_rotated": (_ROPE, rotated),
    "attn.k_rotated": (_ROPE, rotated),
    "attn.scores": ({"groups", "scale", "split", "product_dtype"}, scores),
    "attn.weights": ({"mask", "fill", "softmax_axis", "softmax_dtype"}, weights),
    "attn.heads": ({"groups", "split", "join", "product_dtype", *(_ROPE - {"offset", "counted"})}, heads),
    "attn_residual": ({"attn_adds"}, attn_residual),
    "mlp_norm": (_NORM | {"norms", "parallel"}, norm),
    "mlp.hidden": ({"activation", "gating"}, hidden),
    "residual": ({"mlp_adds"}, residual),
    "final_norm": (_NORM | {"final_norm"}, norm),
    "logits": ({"logits", "logits_scale"}, logits),
}
"""Point -> the choices that decide it, and how it is computed under all of them."""
