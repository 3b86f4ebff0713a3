"""Positions and rotations under the choices that people get wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinyxp.doctor.choices import F, Values
from tinyxp.doctor.distance import round_to
from tinyxp.rope import rope_frequencies


def positions(v: Values) -> F:
    """(b, t), as the choices count them."""
    b, t = v.batch.ids.shape
    columns = np.broadcast_to(np.arange(t), (b, t))
    if v.choices.counted and v.batch.mask is not None:
        columns = np.maximum(np.cumsum(v.batch.mask, axis=1) - 1, 0)
    return columns + v.choices.offset


def frequencies(v: Values) -> F:
    """(hd/2,) radians per position."""
    c, hd = v.choices, v.config.head_dim
    scaling = None if c.scaling == "off" else c.scaling or v.config.rope_scaling
    assert not isinstance(scaling, str)
    shaped = replace(v.config, rope_theta=c.theta or v.config.rope_theta, rope_scaling=scaling)
    if c.exponent == "2i/hd":
        return np.array(rope_frequencies(shaped)) * c.times
    power = np.arange(hd // 2) * (-1.0 / hd if c.exponent == "i/hd" else -2.0 / v.config.d_model)
    return shaped.rope_theta**power * c.times


def turned(v: Values, x: F) -> F:
    """x (b, heads, t, hd) rotated as the choices say."""
    c = v.choices
    width = int(x.shape[-1] * c.part) // 2 * 2
    if width == 0:
        return x
    if width < x.shape[-1]:
        whole = replace(v.config, head_dim=width)
        part = turned(replace(v, config=whole, choices=replace(c, part=1.0)), x[..., :width])
        return np.concatenate([part, x[..., width:]], axis=-1)
    at = round_to(positions(v).astype(np.float64), c.angle_dtype)
    angles = round_to(at[:, None, :, None] * round_to(frequencies(v), c.angle_dtype), c.angle_dtype)
    digits = c.table_dtype or c.angle_dtype
    cos, sin = round_to(np.cos(angles), digits), round_to(np.sin(angles), digits)
    if c.turn == "cos and sin swapped":
        cos, sin = sin, cos
    minus, plus = {"backward": (1.0, -1.0), "both plus": (1.0, 1.0)}.get(c.turn, (-1.0, 1.0))
    halves = c.pairing.startswith("half")
    a, b = (x[..., : width // 2], x[..., width // 2 :]) if halves else (x[..., 0::2], x[..., 1::2])
    # Each number of a pair has a column of the table; one built for the other pairing gives them two.
    joined = np.concatenate([cos, cos], axis=-1), np.concatenate([sin, sin], axis=-1)
    repeated = np.repeat(cos, 2, axis=-1), np.repeat(sin, 2, axis=-1)
    table = repeated if c.pairing in ("neighbour", "half, repeated") else joined
    if halves:
        ca, cb = (t[..., : width // 2] for t in (table[0], table[0][..., width // 2 :]))
        sa, sb = (t[..., : width // 2] for t in (table[1], table[1][..., width // 2 :]))
    else:
        (ca, cb), (sa, sb) = ((t[..., 0::2], t[..., 1::2]) for t in table)
    first, second = a * ca + minus * b * sa, b * cb + plus * a * sb
    if halves:
        return np.concatenate([first, second], axis=-1)
    return np.stack([first, second], axis=-1).reshape(x.shape)
