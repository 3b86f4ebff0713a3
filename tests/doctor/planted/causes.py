"""Whether a diagnosis names a planted fault."""

from __future__ import annotations

from tinyxp.doctor import Cause

from .planted import Planted

READ_OFF = (
    "computes in bfloat16",
    "dropout",
    "extra token 1 in front",
    "head not tied",
    "other weights: blocks.1.mlp.up",
    "other weights: blocks.2.attn.q",
)
"""Keys without a row in the catalogue: they are read off the values, or concern the side as a whole."""


def is_named(planted: Planted, cause: Cause) -> bool:
    """Whether a cause is the planted fault: by its key, and by its blocks."""
    blocks = None if planted.block is None else (planted.block,)
    return cause.keys == (planted.key,) and cause.blocks == blocks
