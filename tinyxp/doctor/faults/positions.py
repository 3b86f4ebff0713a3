"""Faults of positions, rotary and learned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tinyxp.config import Config, RopeScaling
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.change import Change, PointTap, edit_attention, edit_parameters, edit_rotary
from tinyxp.doctor.faults.fault import Fault, NumberFault, Row
from tinyxp.doctor.faults.narrow import narrow
from tinyxp.doctor.traces import Batch
from tinyxp.model import split_heads

ROTATED = ("attn.q_rotated", "attn.k_rotated")
ROTATION = "rotate to (a cos - b sin, b cos + a sin)"


def position_faults(config: Config) -> Iterator[Row]:
    """Positions that are counted otherwise, or not used."""
    learned = config.position == "learned"
    points = ("embed",) if learned else ROTATED
    for offset in (1, -1, 2):
        yield Fault(
            f"positions off by {offset:+d}",
            f"{{it}} counts positions from {offset}, not from 0",
            "count positions from 0",
            points,
            shift_positions(offset),
            "offset",
            rank=1 if offset == 1 else 2,
        )
    yield Fault(
        "positions not counted from the mask",
        "{it} uses column numbers as positions, so padding counts",
        "count each row's real tokens from 0: cumsum(mask) - 1",
        points,
        Change(positions=count_columns),
        "counting",
    )
    if learned:
        yield Fault(
            "positions missing",
            "{it} does not add the learned positions",
            "add pos_embed[position] to the embedding",
            points,
            edit_parameters(["pos_embed.weight"], np.zeros_like),
            "learned positions",
        )
    else:
        yield theta_fault(config)
        yield from scaling_faults(config)
        yield from rotation_faults(config)


def count_columns(positions: np.ndarray, batch: Batch) -> np.ndarray:
    """The positions plus what columns are ahead of real tokens."""
    right = np.maximum(np.cumsum(batch.real, axis=1) - 1, 0)
    columns: np.ndarray = positions + np.arange(batch.ids.shape[1]) - right
    return columns


def shift_positions(offset: int) -> Change:
    return Change(positions=lambda p, batch: p + offset)


def round_positions(dtype: str) -> Change:
    return Change(positions=lambda p, batch: narrow(p, dtype))


def theta_fault(config: Config) -> NumberFault:
    """Another base of the frequencies."""
    right = config.rope_theta
    usual = (1e4, 1e5, 5e5, 1e6)
    rare = (2.5e5, 1e3, 2e4, 5e4, 1e7, 8e6, 5e6, 100.0)
    return NumberFault(
        "theta {value:g}",
        f"{{it}} rotates with theta {{value:g}}; this model's is {right:g}",
        f"take rope_theta {right:g} from the config",
        ROTATED,
        change_theta,
        "theta",
        right,
        low=1e2,
        high=1e9,
        common=(*((theta, 1) for theta in usual), *((theta, 2) for theta in rare)),
    )


def change_theta(theta: float) -> Change:
    return Change(config=lambda c: replace(c, rope_theta=theta))


def scaling_faults(config: Config) -> Iterator[Row]:
    """Frequencies that are scaled otherwise than rope_scaling says."""
    scaling = config.rope_scaling

    def change_scaling(new: RopeScaling | None) -> Change:
        return Change(config=lambda c: replace(c, rope_scaling=new))

    def scaled_by(key: str, says: str, fix: str, old: RopeScaling, right: float, rank: int) -> NumberFault:
        return NumberFault(
            key,
            f"{{it}} divides the frequencies by {{value:g}}; {says}",
            fix,
            ROTATED,
            lambda factor: change_scaling(replace(old, factor=factor)),
            "scaling",
            right,
            low=1.0,
            high=256.0,
            common=tuple((factor, rank) for factor in (2.0, 4.0, 8.0, 16.0, 32.0)),
        )

    if scaling is None:
        linear = RopeScaling(rope_type="linear", factor=1.0)
        says = "this model has no rope_scaling"
        yield scaled_by("linear scaling by {value:g}", says, "do not scale the frequencies", linear, 1.0, 2)
        return
    yield Fault(
        "rope scaling left out",
        f"{{it}} does not scale the frequencies; rope_scaling is of type {scaling.rope_type}",
        "apply rope_scaling from the config",
        ROTATED,
        change_scaling(None),
        "scaling",
    )
    says = f"rope_scaling has factor {scaling.factor:g}"
    fix = "take the factor from the config"
    yield scaled_by("rope scaling by {value:g}", says, fix, scaling, scaling.factor, 1)
    if scaling.rope_type == "llama3":
        yield Fault(
            "llama3 scaling as linear",
            "{it} divides every frequency by the factor; llama3 scaling keeps the high frequencies",
            "scale by wavelength, as llama3 does",
            ROTATED,
            change_scaling(replace(scaling, rope_type="linear")),
            "scaling",
        )
        for length in (2048, 4096, 8192, 16384, 32768, 131072):
            if length != scaling.original_max_seq_len:
                right = scaling.original_max_seq_len
                yield Fault(
                    f"original length {length}",
                    f"{{it}} scales for an original length of {length}; this model's is {right}",
                    "take original_max_position_embeddings from the config",
                    ROTATED,
                    change_scaling(replace(scaling, original_max_seq_len=length)),
                    "scaling",
                    rank=2,
                )


def rotation_faults(config: Config) -> Iterator[Fault]:
    """Pairs, angles and signs that are wrong."""
    row = partial(Fault, points=ROTATED)
    hd, theta = config.head_dim, config.rope_theta
    yield row(
        "exponent i/hd",
        "{it} uses theta^(-i/hd); the exponent is -2i/hd",
        "use 2i/hd, i from 0 to hd/2 - 1",
        change=change_theta(math.sqrt(theta)),
        choice="theta",
    )
    if config.d_model != hd:
        yield row(
            "exponent 2i/d",
            "{it} divides the exponent by the model's width, not by the head size",
            "use 2i/hd",
            change=change_theta(theta ** (hd / config.d_model)),
            choice="theta",
        )
    yield row(
        "neighbour pairing",
        "{it} rotates neighbouring pairs, (x[2i], x[2i+1]); these weights need halves, (x[i], x[i+hd/2])",
        "pair x[i] with x[i + hd/2], or permute the rows of q and k",
        change=edit_rotary(lambda rotary, x, cos, sin, xp: to_pairs(rotary(to_halves(x), cos, sin))),
        choice="pairing",
    )
    for pairing, says, change in (
        ("half, repeated", "rotates halves with a table for neighbours: it repeats each angle", repeated),
        ("neighbour, joined", "rotates neighbours with a table for halves: it repeats all angles", joined),
    ):
        yield row(
            f"table of the other pairing ({pairing})",
            f"{{it}} {says}",
            "build cos and sin for the pairing in use: cat(f, f) for halves, repeat(f, 2) for neighbours",
            change=edit_rotary(change),
            choice="pairing",
        )
    yield row(
        "rotation the other way",
        "{it} rotates by the negative angle: a sine has the wrong sign",
        ROTATION,
        change=edit_rotary(lambda rotary, x, cos, sin, xp: rotary(x, cos, -sin)),
        choice="direction",
    )
    yield row(
        "both signs plus",
        "{it} adds both sines: rotate_half lost its minus",
        ROTATION,
        change=edit_rotary(
            lambda rotary, x, cos, sin, xp: join_halves(rotary(x, cos, -sin), rotary(x, cos, sin))
        ),
        choice="direction",
    )
    yield row(
        "cos and sin swapped",
        "{it} swaps cos and sin",
        ROTATION,
        change=edit_rotary(lambda rotary, x, cos, sin, xp: rotary(x, sin, cos)),
        choice="direction",
        rank=2,
    )
    yield row(
        "rotated twice",
        "{it} rotates q and k twice",
        "rotate q and k once",
        change=edit_rotary(lambda rotary, x, cos, sin, xp: rotary(rotary(x, cos, sin), cos, sin)),
        choice="times",
        rank=2,
    )
    for part in (0.5, 0.25):
        if rotated_width(hd, part):
            yield row(
                f"only {part:g} of each head rotated",
                f"{{it}} rotates only the first {part:g} of each head",
                "rotate the whole head",
                change=edit_rotary(partial(rotate_first, part)),
                choice="width",
                rank=2,
            )

    q: dict[str, PointTap] = {
        "attn.q_rotated": lambda x, at: split_heads(at.points["attn.q"], at.ctx.config.n_heads, xp=np)
    }
    k: dict[str, PointTap] = {
        "attn.k_rotated": lambda x, at: split_heads(at.points["attn.k"], at.ctx.config.n_kv_heads, xp=np)
    }
    alike = "rotate q and k"
    yield row("keys not rotated", "{it} does not rotate k", alike, change=Change(taps=k), choice="rotated")
    yield row("queries not rotated", "{it} does not rotate q", alike, change=Change(taps=q), choice="rotated")
    yield row(
        "no rotation",
        "{it} rotates neither q nor k: it has no positions",
        alike,
        change=Change(taps=q | k),
        choice="rotated",
    )
    yield Fault(
        "values rotated",
        "{it} rotates v too",
        "rotate q and k alone",
        ("attn.heads",),
        Change(
            kernels={
                "attention": edit_attention(
                    lambda q, k, v, ctx: (q, k, ctx.kernels.rotary(v, *(ctx.rotation or ()), xp=ctx.xp))
                )
            }
        ),
        "rotated values",
    )
    for dtype in ("bfloat16", "float16"):
        yield row(
            f"RoPE table in {dtype}",
            f"{{it}} stores cos and sin in {dtype}",
            "compute the table in float32 and cast it last",
            change=edit_rotary(partial(rotate_rounded, dtype)),
            choice="table dtype",
            rank=3,
        )
        yield row(
            f"RoPE angles in {dtype}",
            f"{{it}} computes positions, frequencies and angles in {dtype}",
            "compute the table in float32 and cast it last",
            change=round_positions(dtype),
            choice="angle dtype",
            rank=3,
            narrow=dtype,
        )


def rotated_width(hd: int, part: float) -> int:
    """How many numbers of each head are rotated: an even divisor of the head size, or 0."""
    width = int(hd * part) // 2 * 2
    return width if width and hd % width == 0 else 0


def to_halves(x: Any) -> Any:
    """Neighbouring pairs (x[2i], x[2i + 1]) -> (x[i], x[i + hd/2])."""
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def to_pairs(x: Any) -> Any:
    """The inverse of ``to_halves``."""
    half = x.shape[-1] // 2
    return np.stack([x[..., :half], x[..., half:]], axis=-1).reshape(x.shape)


def join_halves(x: Any, y: Any) -> Any:
    """The first half of x and the second half of y."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], y[..., half:]], axis=-1)


def repeated(rotary: Any, x: Any, cos: Any, sin: Any, xp: Any) -> Any:
    """Halves, each number by its column of a table in which each angle is repeated."""
    half = cos.shape[-1]
    tables = [np.repeat(table, 2, axis=-1) for table in (cos, sin)]
    first, second = (rotary(x, *(t[..., part] for t in tables)) for part in (slice(half), slice(half, None)))
    return join_halves(first, second)


def joined(rotary: Any, x: Any, cos: Any, sin: Any, xp: Any) -> Any:
    """Neighbours, each number by its column of a table in which all angles are repeated."""
    tables = [np.concatenate([table, table], axis=-1) for table in (cos, sin)]
    halves = to_halves(x)
    first, second = (rotary(halves, *(t[..., start::2] for t in tables)) for start in (0, 1))
    return to_pairs(join_halves(first, second))


def rotate_first(part: float, rotary: Any, x: Any, cos: Any, sin: Any, xp: Any) -> Any:
    """The first part of each head rotated, as heads of that size are."""
    width = rotated_width(x.shape[-1], part)
    if not width:
        return x
    step = x.shape[-1] // width
    front = rotary(x[..., :width], cos[..., ::step], sin[..., ::step])
    return np.concatenate([front, x[..., width:]], axis=-1)


def rotate_rounded(dtype: str, rotary: Any, x: Any, cos: Any, sin: Any, xp: Any) -> Any:
    return rotary(x, round_to(cos, dtype), round_to(sin, dtype))
