"""The names of trace points: their order, their axes, and which of their numbers count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tinyxp.config import MLPS, Config

BLOCK_POINTS = (
    "attn_norm", "attn.q", "attn.k", "attn.v", "attn.q_rotated", "attn.k_rotated", "attn.scores",
    "attn.weights", "attn.heads", "attn.out", "attn_residual", "mlp_norm", "mlp.gate", "mlp.up",
    "mlp.hidden", "mlp.out", "residual",
)  # fmt: skip
"""The points of one block, in the order of the computation."""

_BLOCK = re.compile(r"blocks\.(0|[1-9]\d{0,5})\.(.+)")
_LAST = 10**6


class Batch(NamedTuple):
    """What goes into both sides."""

    ids: np.ndarray  # (b, t) int64
    mask: np.ndarray | None = None  # (b, t) bool, True on real tokens

    @property
    def real(self) -> np.ndarray:
        """(b, t) bool."""
        return np.ones(self.ids.shape, bool) if self.mask is None else self.mask


def order(name: str) -> tuple[int, int]:
    """Where a point stands in the computation, as a key to sort by; ValueError for a name that is none."""
    if name == "embed":
        return -1, 0
    if name in ("final_norm", "logits"):
        return _LAST, int(name == "logits")
    found = _BLOCK.fullmatch(name) if isinstance(name, str) else None
    if found is None or found[2] not in BLOCK_POINTS:
        known = f"embed, blocks.0.({', '.join(BLOCK_POINTS)}), final_norm, logits"
        raise ValueError(f"trace point is {name!r}; known are {known}")
    return int(found[1]), BLOCK_POINTS.index(found[2])


def ordered(names: Iterable[str]) -> list[str]:
    """The names in the order of the computation."""
    return sorted(names, key=order)


def block_of(name: str) -> int | None:
    """The block that a point belongs to; None for those outside of all blocks."""
    found = _BLOCK.fullmatch(name)
    return None if found is None else int(found[1])


def kind(name: str) -> str:
    """The point's name within its block: ``attn.q`` of ``blocks.3.attn.q``."""
    found = _BLOCK.fullmatch(name)
    return name if found is None else found[2]


def points_of(config: Config) -> list[str]:
    """The points of a model of this config, in order."""
    absent = set() if config.position == "rope" else {"attn.q_rotated", "attn.k_rotated"}
    absent |= set() if MLPS[config.mlp].gated else {"mlp.gate"}
    blocks = (
        f"blocks.{i}.{name}" for i in range(config.n_layers) for name in BLOCK_POINTS if name not in absent
    )
    return ["embed", *blocks, "final_norm", "logits"]


def axes(name: str) -> tuple[str, ...]:
    """What the axes of a point's array are, for people."""
    last = name.rsplit(".", 1)[-1]
    if last in ("scores", "weights"):
        return "row", "head", "position", "key"
    if last in ("q_rotated", "k_rotated"):
        return "row", "head", "position", "unit"
    return "row", "position", "unit"


def counted(name: str, shape: tuple[int, ...], batch: Batch) -> np.ndarray:
    """Which numbers of a point are to be compared, as bool that broadcasts to ``shape``.

    Those of padding are not; nor are scores that no query may see, which some implementations never make.
    """
    t, real = batch.ids.shape[1], batch.real
    last = name.rsplit(".", 1)[-1]
    if last == "scores":
        visible: np.ndarray = np.tri(t, dtype=bool)[None] & real[:, None, :] & real[:, :, None]
        return visible[:, None]
    if last == "weights":
        return real[:, None, :, None]
    return real[:, None, :, None] if len(shape) == 4 else real[:, :, None]
