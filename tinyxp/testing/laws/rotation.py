"""Laws of rotary: pairs of a head's first and second half are rotated, each by its angle."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.dtypes import EPSILON
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import apply_to_arrays, dtypes, normal, round_to, shapes, tight
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Su et al., 2021: RoFormer"
HALVES = f"{SOURCE}; rotate_half in transformers' Llama, which pairs x[i] with x[i + hd/2]"

law = laws_of("op", "rotation", SOURCE, "ops")


def rotated(ops: Any, xp: Any, x: Any, cos: Any, sin: Any) -> Any:
    return ops.rotary(x, cos, sin, xp=xp)


def turn(subject: Decoder, x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return x (b, h, t, hd) rotated by angles (b or 1, 1, t, hd/2)."""
    y: np.ndarray = subject.run(rotated, x, np.cos(angles), np.sin(angles))
    return y


def draw_heads(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Draw x (b, h, t, hd) and angles (b or 1, 1, t, hd/2), for each column and perhaps each row."""
    b, h, t, half = draw("shape", shapes(subject, (1, 2), (1, 3), (1, 4), (1, 4), pool=[(2, 3, 4, 2)]))
    rows = 1 if draw("same in all rows", st.booleans()) else b
    seed = draw("seed", seeds())
    size = draw("size", st.sampled_from([3.0, 100.0]))
    return normal(seed, b, h, t, 2 * half), normal(seed + 1, rows, 1, t, half, scale=size)


def as_complex(x: np.ndarray) -> np.ndarray:
    """Return (..., hd) as (..., hd/2): each pair (x[i], x[i + hd/2]) as one complex number."""
    first, second = np.split(x, 2, axis=-1)
    z: np.ndarray = first + 1j * second
    return z


@law("rotary multiplies the complex number x[i] + i x[i + hd/2] by exp(i angle).", source=HALVES)
def rotary_multiplies_complex_numbers(subject: Decoder, draw: Draw) -> None:
    x, angles = draw_heads(subject, draw)
    z = as_complex(x) * np.exp(1j * angles)
    expected = np.concatenate([z.real, z.imag], axis=-1)
    subject.close(turn(subject, x, angles), expected, "the rotated head", within=tight(subject))


@law("At angle 0 rotary changes nothing.")
def rotary_by_nothing_is_the_identity(subject: Decoder, draw: Draw) -> None:
    x, angles = draw_heads(subject, draw)
    dtype = draw("dtype", dtypes(subject))
    found = subject.run(rotated, x, np.cos(0.0 * angles), 0.0 * angles, dtype=dtype)
    subject.equal(found, round_to(subject, x, dtype), f"a head rotated by 0 in {dtype}")


@law("rotary keeps the length of every pair.")
def rotary_keeps_lengths(subject: Decoder, draw: Draw) -> None:
    x, angles = draw_heads(subject, draw)
    found = np.abs(as_complex(turn(subject, x, angles)))
    subject.close(found, np.abs(as_complex(x)), "lengths of pairs", within=tight(subject))


@law("Rotating by a, then by b, is rotating by a + b; rotating back by a restores x.")
def rotations_compose(subject: Decoder, draw: Draw) -> None:
    x, angles = draw_heads(subject, draw)
    others = normal(draw("others", seeds()), *angles.shape)
    once = turn(subject, x, angles)
    subject.close(turn(subject, once, others), turn(subject, x, angles + others), "a head rotated twice")
    subject.close(turn(subject, once, -angles), x, "a head rotated there and back")


@law("The product of a rotated query and a rotated key depends only on the distance of their positions.")
def rotary_scores_depend_on_distance(subject: Decoder, draw: Draw) -> None:
    q, _ = draw_heads(subject, draw)
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
    subject.close(products[1], products[0], f"products of heads {shift} positions later")


@law(
    "In every dtype float32 tables rotate a head as accurately as the dtype allows: to three roundings of a "
    "pair.",
    source="tinyxp's own contract: cos and sin come in float32 at least, and are cast last",
)
def rotary_takes_wide_tables(subject: Decoder, draw: Draw) -> None:
    x, angles = draw_heads(subject, draw)
    dtype = draw("dtype", dtypes(subject))
    tables = [subject.array(table, "float32") for table in (np.cos(angles), np.sin(angles))]
    result = subject.host(apply_to_arrays(subject, rotated, subject.array(x, dtype), *tables))
    found = as_complex(result.astype(np.float64))
    held = as_complex(round_to(subject, x, dtype))
    expected, size = held * np.exp(1j * angles), np.abs(held)
    # The tables, the products and the sum are each off by half a step, in both parts.
    within = 3.0 * max(EPSILON[dtype], EPSILON["float32"])
    subject.close(np.abs(found - expected) / np.maximum(size, 1e-2), 0.0 * size, dtype, within=within)
