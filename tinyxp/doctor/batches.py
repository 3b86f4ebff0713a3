"""The input of both sides: given ids, those of a recorded trace, or drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxp.doctor.sides import Side, extend_batch
from tinyxp.doctor.traces import ANY_ID, Batch
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask

DRAWN = 32
"""How many ids are drawn if none are given."""


def choose_batch(a: Side, b: Side, ids: Any, mask: Any) -> Batch:
    """Return the input of both sides. Raise ValueError if one of them cannot take it."""
    batches = [(side, side.batch) for side in (a, b) if side.batch is not None]
    if ids is not None:
        batch = Batch(as_host_integers(ids, ANY_ID))
    elif batches:
        batch = batches[0][1]
    elif mask is not None:
        raise ValueError("mask is given, and ids are not: pass ids")
    else:
        batch = Batch(draw_ids((a, b)))
    if mask is not None:
        batch = Batch(batch.ids, as_host_mask(mask, batch.ids.shape))
    for side, recorded in batches:
        if not np.array_equal(recorded.ids, batch.ids):
            raise ValueError(
                f"{side.name} was recorded for ids {_shorten(recorded.ids)}; "
                f"the other side gets {_shorten(batch.ids)}"
            )
        if not np.array_equal(recorded.real, batch.real):
            raise ValueError(f"{side.name} was recorded for another mask than the other side gets")
    for side in (a, b):
        if side.config is not None:
            limit = side.config.vocab_size
            as_host_integers(batch.ids, Bounds("ids", limit, f"the vocabulary size of {side.name},"))
    if not batch.real.any():
        raise ValueError("mask has no real token: there is nothing to compare")
    return batch


def _shorten(ids: np.ndarray) -> str:
    """Format the first ids for a message."""
    flat = ids.ravel().tolist()
    return f"{flat[:8]}{'...' if len(flat) > 8 else ''} of shape {ids.shape}"


def draw_ids(sides: Sequence[Side]) -> np.ndarray:
    """Return (1, up to 32) ids that every side knows, always the same ones."""
    configs = [side.config for side in sides if side.config is not None]
    if not configs:
        raise ValueError("ids are not given, and neither side has a config with a vocabulary size: pass ids")
    learned = [config.max_seq_len for config in configs if config.position == "learned"]
    size = (1, min([DRAWN, *learned]))
    return np.random.default_rng(0).integers(min(config.vocab_size for config in configs), size=size)


def continue_greedily(side: Side, batch: Batch, count: int) -> Batch:
    """Return the batch with ``count`` greedy tokens of a side after each row."""
    if batch.mask is not None and not batch.mask[:, -1].all():
        raise ValueError("generate continues the last column, which the mask says is padding in some row")
    return extend_batch(batch, side.generate(batch, count))
