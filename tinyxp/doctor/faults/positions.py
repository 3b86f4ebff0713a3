"""Faults of positions, rotary and learned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tinyxp.config import Config, RopeScaling
from tinyxp.doctor.faults.record import Fault, choosing

ROTATED = ("attn.q_rotated", "attn.k_rotated")


def rotations(config: Config) -> Iterator[Fault]:
    if config.position != "rope":
        return
    yield choosing(
        "neighbour pairing",
        "{it} rotates neighbouring pairs, (x[2i], x[2i + 1]); these weights want halves, (x[i], x[i + hd/2])",
        "pair x[i] with x[i + hd/2], or permute the rows of q and k to match",
        ROTATED,
        pairing="neighbour",
    )
    for theta in (1e4, 1e5, 5e5, 1e6, 2.5e5, 1e3, 2e4, 5e4, 1e7, 8e6, 5e6, 100.0):
        if not math.isclose(theta, config.rope_theta, rel_tol=1e-6):
            yield choosing(
                f"theta {theta:g}",
                f"{{it}} rotates with theta {theta:g}; this model's is {config.rope_theta:g}",
                f"take rope_theta {config.rope_theta:g} from the config",
                ROTATED,
                likely=1 if theta in (1e4, 1e5, 5e5, 1e6) else 2,
                theta=theta,
            )
    yield from scalings(config)
    yield choosing(
        "exponent i/hd",
        "{it} takes theta^(-i/hd); the exponent is -2i/hd",
        "use 2i/hd, i from 0 to hd/2 - 1",
        ROTATED,
        exponent="i/hd",
    )
    if config.d_model != config.head_dim:
        yield choosing(
            "exponent 2i/d",
            "{it} divides the exponent by the model's width, not by the head's",
            "use 2i/hd",
            ROTATED,
            exponent="2i/d",
        )
    yield choosing(
        "rotation the other way",
        "{it} rotates by minus the angle: a sine has the wrong sign",
        "rotate to (a cos - b sin, b cos + a sin)",
        ROTATED,
        turn="backward",
    )
    for pairing, says in (
        ("half, repeated", "rotates halves with a table for neighbours: each angle stands twice in a row"),
        (
            "neighbour, joined",
            "rotates neighbours with a table for halves: the angles stand one after another",
        ),
    ):
        yield choosing(
            f"table of the other pairing ({pairing})",
            f"{{it}} {says}",
            "build cos and sin for the pairing in use: cat(f, f) for halves, repeat(f, 2) for neighbours",
            ROTATED,
            pairing=pairing,
        )
    yield choosing(
        "both signs plus",
        "{it} adds both sines: one half of rotate_half lost its minus",
        "rotate to (a cos - b sin, b cos + a sin)",
        ROTATED,
        turn="both plus",
    )
    yield choosing(
        "cos and sin swapped",
        "{it} has cos and sin in each other's place",
        "rotate to (a cos - b sin, b cos + a sin)",
        ROTATED,
        likely=2,
        turn="cos and sin swapped",
    )
    yield choosing(
        "rotated twice",
        "{it} rotates q and k twice",
        "rotate once",
        ROTATED,
        times=2.0,
    )
    for part in (0.5, 0.25):
        if int(config.head_dim * part) >= 2:
            yield choosing(
                f"only {part:g} of each head rotated",
                f"{{it}} rotates only the first {part:g} of each head",
                "rotate the whole head",
                ROTATED,
                likely=2,
                part=part,
            )
    yield choosing("keys not rotated", "{it} does not rotate k", "rotate q and k alike", ROTATED, turned="q")
    yield choosing(
        "queries not rotated", "{it} does not rotate q", "rotate q and k alike", ROTATED, turned="k"
    )
    yield choosing(
        "no rotation",
        "{it} rotates neither q nor k: positions are missing",
        "rotate q and k",
        ROTATED,
        turned="",
    )
    yield choosing(
        "values rotated", "{it} rotates v too", "rotate q and k alone", ("attn.heads",), turned="qkv"
    )
    for dtype in ("bfloat16", "float16"):
        yield choosing(
            f"RoPE table in {dtype}",
            f"{{it}} keeps cos and sin in {dtype}",
            "compute the table in float32 and cast it last",
            ROTATED,
            likely=3,
            table_dtype=dtype,
        )
        yield choosing(
            f"RoPE angles in {dtype}",
            f"{{it}} computes positions, frequencies and angles in {dtype}",
            "compute the table in float32 and cast it last",
            ROTATED,
            likely=3,
            coarse=dtype,
            angle_dtype=dtype,
        )


def scalings(config: Config) -> Iterator[Fault]:
    scaling, factors = config.rope_scaling, (2.0, 4.0, 8.0, 16.0, 32.0)
    if scaling is None:
        for factor in factors:
            yield choosing(
                f"linear scaling by {factor:g}",
                f"{{it}} divides the frequencies by {factor:g}; this model has no rope_scaling",
                "leave the frequencies as they are",
                ROTATED,
                likely=2,
                scaling=RopeScaling(rope_type="linear", factor=factor),
            )
        return
    yield choosing(
        "rope scaling left out",
        f"{{it}} does not stretch the frequencies as rope_scaling says ({scaling.rope_type})",
        "apply rope_scaling from the config",
        ROTATED,
        scaling="off",
    )
    for factor in factors:
        if factor != scaling.factor:
            yield choosing(
                f"rope scaling by {factor:g}",
                f"{{it}} stretches the frequencies by {factor:g}; rope_scaling says {scaling.factor:g}",
                "take the factor from the config",
                ROTATED,
                scaling=replace(scaling, factor=factor),
            )
    if scaling.rope_type == "llama3":
        yield choosing(
            "llama3 scaling as linear",
            "{it} divides every frequency by the factor; llama3 scaling keeps the fast ones",
            "scale by wavelength, as llama3 does",
            ROTATED,
            scaling=replace(scaling, rope_type="linear"),
        )
        for length in (2048, 4096, 8192, 16384, 32768, 131072):
            if length != scaling.original_max_seq_len:
                yield choosing(
                    f"original length {length}",
                    f"{{it}} takes {length} for the original length; it is {scaling.original_max_seq_len}",
                    "take original_max_position_embeddings from the config",
                    ROTATED,
                    likely=2,
                    scaling=replace(scaling, original_max_seq_len=length),
                )


def positions(config: Config) -> Iterator[Fault]:
    shows = ("embed",) if config.position == "learned" else ROTATED
    for offset in (1, -1, 2):
        yield choosing(
            f"positions off by {offset:+d}",
            f"{{it}} counts positions from {offset}, not from 0",
            "count positions from 0",
            shows,
            likely=1 if offset == 1 else 2,
            offset=offset,
        )
    yield choosing(
        "positions not counted from the mask",
        "{it} takes column numbers for positions, so that padding counts",
        "count each row's real tokens from 0: cumsum(mask) - 1",
        shows,
        counted=False,
    )
    if config.position == "learned":
        yield choosing(
            "positions missing",
            "{it} does not add the learned positions",
            "add pos_embed[position]",
            ("embed",),
            learned=False,
        )
