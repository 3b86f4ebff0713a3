"""Every choice of a decoder that people get wrong, by name, with the values that it then has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from tinyxp.config import Config, RopeScaling
from tinyxp.doctor.traces import Batch

F = Any
"""An array of NumPy."""


@dataclass(frozen=True)
class Choices:
    """How a decoder computes; None, and the defaults, are as its config says and as is right."""

    norm: str | None = None  # "rms" or "layer"
    norm_weight: str = "w"  # "1 + w", "w - 1", "1"
    norm_bias: bool = True
    norm_sum: bool = False  # the sum of squares in place of their mean
    eps: float | None = None
    eps_place: str = "inside"  # the root; "outside"; "no root"
    ddof: int = 0
    norm_dtype: str | None = None
    norms: bool = True  # whether blocks normalise at all
    post_norm: bool = False  # what each half of a block adds to, not what it reads
    parallel: bool = False  # the MLP reads the block's input
    pairing: str = "half"  # "neighbour"; "half, repeated" and "neighbour, joined" with the other one's table
    theta: float | None = None
    scaling: RopeScaling | str | None = None  # another, or "off"
    exponent: str = "2i/hd"  # "i/hd", "2i/d"
    turn: str = "forward"  # "backward", "both plus", "cos and sin swapped"
    turned: str = "qk"  # "q", "k", "", "qkv"
    part: float = 1.0  # of each head that is rotated
    times: float = 1.0  # the angle
    offset: int = 0  # added to positions
    counted: bool = True  # whether positions count real tokens only
    table_dtype: str | None = None  # of cos and sin
    angle_dtype: str | None = None  # of positions and frequencies too
    split: str = "heads"  # "reshape": cut into heads without transposing
    join: str = "heads"  # "reshape": joined without transposing
    mask: str = "causal"
    fill: float = -math.inf  # what a masked score becomes
    softmax_axis: int = -1
    groups: str = "repeat"  # "tile", "first", "next"
    scale: str = "1/sqrt(hd)"
    softmax_dtype: str | None = None
    activation: str | None = None
    gating: str = "act(gate) up"  # "act(up) gate", "act(gate)", "act(up)", "act(gate up)", "act(gate) + up"
    embed_scale: float = 1.0
    learned: bool = True  # whether learned positions are added
    final_norm: str = "once"  # "missing", "twice"
    attn_adds: str = "input"  # what attention is added to: "nothing", "norm"
    mlp_adds: str = "stream"  # "nothing", "norm"
    logits: str = "logits"  # "softmax", "log softmax", "capped at 30", "capped at 50"
    logits_scale: float = 1.0
    product_dtype: str | None = None  # that both sides of every matrix product are rounded to

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
