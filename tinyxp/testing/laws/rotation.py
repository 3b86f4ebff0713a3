"""Laws of rotary: pairs of a head's first and second half turn, each by its angle."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.operands import applied, dtypes, normal, rounded, shapes, tight
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subject import Decoder

SOURCE = "Su et al., 2021: RoFormer"
HALVES = f"{SOURCE}; rotate_half in transformers' Llama, which pairs x[i] with x[i + hd/2]"


def rotated(ops: Any, xp: Any, x: Any, cos: Any, sin: Any) -> Any:
    return ops.rotary(x, cos, sin, xp=xp)


def turn(subject: Decoder, x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """x (b, h, t, hd) turned by angles (b or 1, 1, t, hd/2)."""
    y: np.ndarray = subject.run(rotated, x, np.cos(angles), np.sin(angles))
    return y


def heads(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """x (b, h, t, hd), and angles (b or 1, 1, t, hd/2): each column, and perhaps each row, has its own."""
    b, h, t, half = draw("shape", shapes(subject, (1, 2), (1, 3), (1, 4), (1, 4), pool=[(2, 3, 4, 2)]))
    rows = 1 if draw("same in all rows", st.booleans()) else b
    seed = draw("seed", seeds())
    size = draw("size", st.sampled_from([3.0, 100.0]))
    return normal(seed, b, h, t, 2 * half), normal(seed + 1, rows, 1, t, half, scale=size)


def as_complex(x: np.ndarray) -> np.ndarray:
    """(..., hd) -> (..., hd/2): the pair (x[i], x[i + hd/2]) as one complex number."""
    first, second = np.split(x, 2, axis=-1)
    z: np.ndarray = first + 1j * second
    return z


@law(
    "rotary multiplies the complex number x[i] + i x[i + hd/2] by exp(i angle).",
    of="op",
    region="rotation",
    source=HALVES,
    needs="ops",
)
def rotary_multiplies_complex_numbers(subject: Decoder, draw: Draw) -> None:
    x, angles = heads(subject, draw)
    z = as_complex(x) * np.exp(1j * angles)
    expected = np.concatenate([z.real, z.imag], axis=-1)
    subject.close(turn(subject, x, angles), expected, "the turned head", within=tight(subject))


@law("At angle 0 rotary changes nothing.", of="op", region="rotation", source=SOURCE, needs="ops")
def rotary_by_nothing_is_the_identity(subject: Decoder, draw: Draw) -> None:
    x, angles = heads(subject, draw)
    dtype = draw("dtype", dtypes(subject))
    found = subject.run(rotated, x, np.cos(0.0 * angles), 0.0 * angles, dtype=dtype)
    subject.equal(found, rounded(subject, x, dtype), f"a head turned by 0 in {dtype}")


@law("rotary keeps the length of every pair.", of="op", region="rotation", source=SOURCE, needs="ops")
def rotary_keeps_lengths(subject: Decoder, draw: Draw) -> None:
    x, angles = heads(subject, draw)
    found = np.abs(as_complex(turn(subject, x, angles)))
    subject.close(found, np.abs(as_complex(x)), "lengths of pairs", within=tight(subject))


@law(
    "Turning by a, then by b, is turning by a + b; turning back by a gives x again.",
    of="op",
    region="rotation",
    source=SOURCE,
    needs="ops",
)
def rotations_compose(subject: Decoder, draw: Draw) -> None:
    x, angles = heads(subject, draw)
    others = normal(draw("others", seeds()), *angles.shape)
    once = turn(subject, x, angles)
    subject.close(turn(subject, once, others), turn(subject, x, angles + others), "a head turned twice")
    subject.close(turn(subject, once, -angles), x, "a head turned there and back")


@law(
    "The product of a turned query and a turned key depends on the distance of their positions alone.",
    of="op",
    region="rotation",
    source=SOURCE,
    needs="ops",
)
def rotary_scores_depend_on_distance(subject: Decoder, draw: Draw) -> None:
    q, _ = heads(subject, draw)
    k = normal(draw("keys", seeds()), *q.shape)
    half = q.shape[-1] // 2
    frequencies = 100.0 ** (-np.arange(half) / half)
    positions = np.arange(q.shape[2])[None, None, :, None]
    shift = draw("shift", st.integers(0, 100))
    products = [
        turn(subject, q, frequencies * (positions + moved))
        @ turn(subject, k, frequencies * (positions + moved)).swapaxes(-1, -2)
        for moved in (0, shift)
    ]
    subject.close(products[1], products[0], f"products of heads that stand {shift} later")


@law(
    "In every dtype tables of float32 turn a head as well as the dtype can: to three roundings of a pair.",
    of="op",
    region="rotation",
    source="tinyxp's own contract: cos and sin come in float32 at least, and are cast last",
    needs="ops",
)
def rotary_takes_wide_tables(subject: Decoder, draw: Draw) -> None:
    x, angles = heads(subject, draw)
    dtype = draw("dtype", dtypes(subject))
    tables = [subject.array(table, "float32") for table in (np.cos(angles), np.sin(angles))]
    turned = subject.host(applied(subject, rotated, subject.array(x, dtype), *tables))
    found = as_complex(turned.astype(np.float64))
    held = as_complex(rounded(subject, x, dtype))
    expected, size = held * np.exp(1j * angles), np.abs(held)
    # Of the tables, the products and the sum each is off by half a step, in both parts.
    within = 3.0 * max(EPSILON[dtype], EPSILON["float32"])
    subject.close(np.abs(found - expected) / np.maximum(size, 1e-2), 0.0 * size, dtype, within=within)
