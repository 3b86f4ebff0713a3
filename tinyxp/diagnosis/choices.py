"""A decoder that can be wrong: every choice that people get wrong, by name, and the values it then has.

Each point of a pass is computed again from the points before it wherever a choice differs from the right one;
all else is the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tinyxp import ops
from tinyxp.comparison.distance import rounded
from tinyxp.comparison.points import Batch
from tinyxp.config import Config, RopeScaling
from tinyxp.model import join_heads, rope_frequencies, split_heads

F = Any
"""An array of NumPy."""


@dataclass(frozen=True)
class Choices:
    """How a decoder computes; None, and the defaults, are as its config says and as is right."""

    norm: str | None = None  # "rms" or "layer"
    norm_weight: str = "w"  # "1 + w", "w - 1", "1"
    norm_bias: bool = True
    eps: float | None = None
    eps_place: str = "inside"  # the root; "outside"
    ddof: int = 0
    norm_dtype: str | None = None
    norms: bool = True  # whether blocks normalise at all
    post_norm: bool = False  # what each half of a block adds to, not what it reads
    pairing: str = "half"  # "neighbour"
    theta: float | None = None
    scaling: RopeScaling | str | None = None  # another, or "off"
    exponent: str = "2i/hd"  # "i/hd", "2i/d"
    turn: float = 1.0  # -1 the other way
    turned: str = "qk"  # "q", "k", "", "qkv"
    offset: int = 0  # added to positions
    counted: bool = True  # whether positions count real tokens only
    table_dtype: str | None = None  # of cos and sin
    angle_dtype: str | None = None  # of positions and frequencies too
    mask: str = "causal"
    fill: float = -math.inf  # what a masked score becomes
    groups: str = "repeat"  # "tile"
    scale: str = "1/sqrt(hd)"
    softmax_dtype: str | None = None
    activation: str | None = None
    swapped: bool = False  # act(up) * gate
    embed_scale: float = 1.0
    learned: bool = True  # whether learned positions are added
    final_norm: bool = True
    attn_skip: bool = True  # whether the residual goes around attention
    mlp_skip: bool = True
    logits_scale: float = 1.0

    def changed(self) -> set[str]:
        """The fields that differ from what is right."""
        return {f.name for f in fields(self) if getattr(self, f.name) != f.default}


SCALES: dict[str, Callable[[Config], float]] = {
    "1/sqrt(hd)": lambda c: 1.0 / math.sqrt(c.head_dim),
    "1": lambda c: 1.0,
    "1/hd": lambda c: 1.0 / c.head_dim,
    "1/sqrt(d)": lambda c: 1.0 / math.sqrt(c.d_model),
    "1/sqrt(h)": lambda c: 1.0 / math.sqrt(c.n_heads),
    "1/sqrt(d/h)": lambda c: math.sqrt(c.n_heads / c.d_model),
    "sqrt(hd)": lambda c: math.sqrt(c.head_dim),
}


@dataclass
class Values:
    """What one pass has computed so far in a block, and what its choices need to know."""

    choices: Choices
    config: Config
    batch: Batch
    weight: Callable[[str], F | None]  # by name within the block or the model; None where there is none
    points: dict[str, F] = field(default_factory=dict)  # by the name within the block

    def again(self, kind: str, right: F) -> F:
        """The value of a point under the choices, given the right one."""
        rule = RULES.get(kind)
        if rule is None or not (rule[0] & self.choices.changed()):
            return right
        with np.errstate(all="ignore"):
            return rule[1](self, kind, right)


def positions(v: Values) -> F:
    """(b, t), as the choices count them."""
    b, t = v.batch.ids.shape
    columns = np.broadcast_to(np.arange(t), (b, t))
    if v.choices.counted and v.batch.mask is not None:
        columns = np.maximum(np.cumsum(v.batch.mask, axis=1) - 1, 0)
    return columns + v.choices.offset


def norm(v: Values, kind: str, right: F) -> F:
    """The norm before attention, before the MLP, or the last one."""
    c = v.choices
    x = v.points["input" if kind != "mlp_norm" else "attn_residual"]
    if (kind == "final_norm" and not c.final_norm) or (kind != "final_norm" and not c.norms):
        return x
    return normed(v, kind, x)


def normed(v: Values, kind: str, x: F) -> F:
    """x by the norm of that name."""
    c = v.choices
    digits = c.norm_dtype
    eps = v.config.norm_eps if c.eps is None else c.eps
    x = rounded(x, digits)
    if (c.norm or v.config.norm) == "layer":
        x = rounded(x - rounded(np.mean(x, axis=-1, keepdims=True), digits), digits)
    size = max(x.shape[-1] - c.ddof, 1)
    square = rounded(np.sum(rounded(x * x, digits), axis=-1, keepdims=True) / size, digits)
    root = np.sqrt(square + eps) if c.eps_place == "inside" else np.sqrt(square) + eps
    y = rounded(x / rounded(root, digits), digits)
    w = v.weight(f"{kind}.weight")
    assert w is not None
    w = w.astype(np.float64)
    w = {"w": w, "1 + w": 1.0 + w, "w - 1": w - 1.0, "1": np.ones_like(w)}[c.norm_weight]
    y = rounded(y * rounded(w, digits), digits)
    bias = v.weight(f"{kind}.bias")
    return y if bias is None or not c.norm_bias else rounded(y + bias, digits)


def turned(v: Values, x: F) -> F:
    """x (b, heads, t, hd) rotated as the choices say."""
    c, hd = v.choices, v.config.head_dim
    scaling = None if c.scaling == "off" else c.scaling or v.config.rope_scaling
    assert not isinstance(scaling, str)
    shaped = replace(v.config, rope_theta=c.theta or v.config.rope_theta, rope_scaling=scaling)
    frequencies = np.array(rope_frequencies(shaped))
    if c.exponent != "2i/hd":
        power = np.arange(hd // 2) * (-1.0 / hd if c.exponent == "i/hd" else -2.0 / v.config.d_model)
        frequencies = shaped.rope_theta**power
    at = rounded(positions(v).astype(np.float64), c.angle_dtype)
    angles = rounded(at[:, None, :, None] * rounded(frequencies, c.angle_dtype), c.angle_dtype)
    digits = c.table_dtype or c.angle_dtype
    cos, sin = rounded(np.cos(angles), digits), rounded(np.sin(angles), digits) * c.turn
    if c.pairing == "half":
        return ops.rotary(x, cos, sin, xp=np)
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def rotated(v: Values, kind: str, right: F) -> F:
    name = kind[len("attn.")]
    heads = v.config.n_heads if name == "q" else v.config.n_kv_heads
    x: Any = split_heads(v.points[f"attn.{name}"], heads, xp=np)
    return turned(v, x) if name in v.choices.turned else x


def of_query_heads(v: Values, x: F) -> F:
    """Keys or values (b, g, t, hd) for every query head (b, h, t, hd)."""
    times = v.config.n_heads // v.config.n_kv_heads
    return np.repeat(x, times, axis=1) if v.choices.groups == "repeat" else np.tile(x, (1, times, 1, 1))


def scores(v: Values, kind: str, right: F) -> F:
    def heads_of(name: str, heads: int) -> Any:
        if f"attn.{name}_rotated" in v.points:
            return v.points[f"attn.{name}_rotated"]
        return split_heads(v.points[f"attn.{name}"], heads, xp=np)

    q, k = heads_of("q", v.config.n_heads), of_query_heads(v, heads_of("k", v.config.n_kv_heads))
    product: F = q @ k.swapaxes(-1, -2) * SCALES[v.choices.scale](v.config)
    return product


def visible(v: Values) -> F:
    """(b, 1, t, t) bool, as the choices say."""
    kind, t = v.choices.mask, v.batch.ids.shape[1]
    query, key = np.arange(t)[:, None], np.arange(t)[None, :]
    real = v.batch.real[:, None, None, :]
    sees = {"none": key >= 0, "strict": key < query, "ahead": key <= query + 1, "future": key >= query}
    causal = sees.get(kind, key <= query)[None, None]
    if kind == "none":
        return np.broadcast_to(causal & real, (len(real), 1, t, t))
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
    x = rounded(x, c.softmax_dtype)
    e = rounded(np.exp(x - np.max(x, axis=-1, keepdims=True)), c.softmax_dtype)
    y = rounded(e / rounded(np.sum(e, axis=-1, keepdims=True), c.softmax_dtype), c.softmax_dtype)
    return np.where(sees, y, 0.0) if c.mask == "after softmax" else y


def heads(v: Values, kind: str, right: F) -> F:
    values: Any = split_heads(v.points["attn.v"], v.config.n_kv_heads, xp=np)
    if "v" in v.choices.turned:
        values = turned(v, values)
    y: Any = join_heads(v.points["attn.weights"] @ of_query_heads(v, values), xp=np)
    return y


def sigmoid(x: F) -> F:
    return 1.0 / (1.0 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: ops.gelu(x, xp=np),
    "gelu_tanh": lambda x: ops.gelu_tanh(x, xp=np),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "none": lambda x: x,
}


def hidden(v: Values, kind: str, right: F) -> F:
    gated = v.config.mlp == "swiglu"
    act = ACTIVATIONS[v.choices.activation or ("silu" if gated else v.config.mlp)]
    if not gated:
        return act(v.points["mlp.up"])
    gate, up = v.points["mlp.gate"], v.points["mlp.up"]
    return act(up) * gate if v.choices.swapped else act(gate) * up


def embed(v: Values, kind: str, right: F) -> F:
    table = v.weight("embed.weight")
    assert table is not None
    x = table[v.batch.ids].astype(np.float64) * v.choices.embed_scale
    rows = v.weight("pos_embed.weight") if v.config.position == "learned" else None
    if rows is not None and v.choices.learned:
        x = x + rows[np.clip(positions(v), 0, len(rows) - 1)]
    return x


def attn_residual(v: Values, kind: str, right: F) -> F:
    return v.points["attn.out"]


def residual(v: Values, kind: str, right: F) -> F:
    return v.points["mlp.out"]


_NORM = {"norm", "norm_weight", "norm_bias", "eps", "eps_place", "ddof", "norm_dtype"}
_ROPE = {
    "pairing",
    "theta",
    "scaling",
    "exponent",
    "turn",
    "turned",
    "offset",
    "counted",
    "table_dtype",
    "angle_dtype",
}
RULES: dict[str, tuple[set[str], Callable[[Values, str, F], F]]] = {
    "embed": ({"embed_scale", "learned", "offset", "counted"}, embed),
    "attn_norm": (_NORM | {"norms"}, norm),
    "attn.q_rotated": (_ROPE, rotated),
    "attn.k_rotated": (_ROPE, rotated),
    "attn.scores": ({"groups", "scale"}, scores),
    "attn.weights": ({"mask", "fill", "softmax_dtype"}, weights),
    "attn.heads": ({"groups", "turned", *(_ROPE - {"offset", "counted"})}, heads),
    "attn_residual": ({"attn_skip"}, attn_residual),
    "mlp_norm": (_NORM | {"norms"}, norm),
    "mlp.hidden": ({"activation", "swapped"}, hidden),
    "residual": ({"mlp_skip"}, residual),
    "final_norm": (_NORM | {"final_norm"}, norm),
    "logits": ({"logits_scale"}, lambda v, kind, right: right * v.choices.logits_scale),
}
"""Point -> the choices that decide it, and how it is computed under all of them."""
