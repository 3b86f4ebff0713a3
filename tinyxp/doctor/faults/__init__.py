"""The faults that people make: what each does to a right model, where it shows first, what to do about it."""

from __future__ import annotations

from tinyxp.config import Config
from tinyxp.doctor.faults.attention import attention
from tinyxp.doctor.faults.blocks import feed_forward, stream
from tinyxp.doctor.faults.matrices import (
    biases,
    block_roundings,
    copies,
    eight_bits,
    exchanges,
    roundings,
    transpositions,
)
from tinyxp.doctor.faults.norms import norms
from tinyxp.doctor.faults.positions import positions, rotations
from tinyxp.doctor.faults.record import Fault, Maker
from tinyxp.doctor.faults.rows import fused, permutations
from tinyxp.doctor.faults.tables import extra_tokens, lengths, tables

__all__ = ["Fault", "faults_of"]

MAKERS: tuple[Maker, ...] = (
    norms,
    rotations,
    positions,
    attention,
    feed_forward,
    stream,
    permutations,
    fused,
    transpositions,
    exchanges,
    copies,
    biases,
    tables,
    roundings,
    block_roundings,
    eight_bits,
    lengths,
    extra_tokens,
)


def faults_of(config: Config) -> list[Fault]:
    """Every known fault that a model of this config can have."""
    return [fault for make in MAKERS for fault in make(config)]
