"""The names of trace points: their order in the computation, and the axes and shapes of their arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tinyxp.config import MLPS, Config

BLOCK_POINTS = (
    "attn_norm", "attn.q", "attn.k", "attn.v", "attn.q_rotated", "attn.k_rotated", "attn.scores",
    "attn.weights", "attn.heads", "attn.out", "attn_residual", "mlp_norm", "mlp.gate", "mlp.up",
    "mlp.hidden", "mlp.out", "residual",
)  # fmt: skip
"""The points of one block, in the order of the computation."""

_BLOCK = re.compile(r"blocks\.(0|[1-9]\d{0,5})\.(.+)")
_LAST = 10**6
_SHAPES = {
    "attn.q": "(b, t, h*hd)",
    "attn.k": "(b, t, g*hd)",
    "attn.v": "(b, t, g*hd)",
    "attn.q_rotated": "(b, h, t, hd)",
    "attn.k_rotated": "(b, g, t, hd)",
    "attn.scores": "(b, h, t, t)",
    "attn.weights": "(b, h, t, t)",
    "attn.heads": "(b, t, h*hd)",
    "mlp.gate": "(b, t, f)",
    "mlp.up": "(b, t, f)",
    "mlp.hidden": "(b, t, f)",
    "logits": "(b, t, n)",
}


def point_order(name: str) -> tuple[int, int]:
    """Return a sort key: the point's place in the computation. Raise ValueError for an unknown name."""
    if name == "embed":
        return -1, 0
    if name in ("final_norm", "logits"):
        return _LAST, int(name == "logits")
    match = _BLOCK.fullmatch(name) if isinstance(name, str) else None
    if match is None or match[2] not in BLOCK_POINTS:
        known = f"embed, blocks.0.({', '.join(BLOCK_POINTS)}), final_norm, logits"
        raise ValueError(f"trace point is {name!r}; known are {known}")
    return int(match[1]), BLOCK_POINTS.index(match[2])


def sort_points(names: Iterable[str]) -> list[str]:
    """Return the names in the order of the computation."""
    return sorted(names, key=point_order)


def block_of(name: str) -> int | None:
    """Return the block that a point belongs to; None for embed, final_norm and logits."""
    match = _BLOCK.fullmatch(name)
    return None if match is None else int(match[1])


def kind(name: str) -> str:
    """Return the point's name within its block: ``attn.q`` for ``blocks.3.attn.q``."""
    match = _BLOCK.fullmatch(name)
    return name if match is None else match[2]


def points_of(config: Config) -> list[str]:
    """Return the points of a model with this config, in order."""
    absent = set() if config.position == "rope" else {"attn.q_rotated", "attn.k_rotated"}
    absent |= set() if MLPS[config.mlp].gated else {"mlp.gate"}
    blocks = (
        f"blocks.{i}.{name}" for i in range(config.n_layers) for name in BLOCK_POINTS if name not in absent
    )
    return ["embed", *blocks, "final_norm", "logits"]


def axes(name: str) -> tuple[str, ...]:
    """Return the names of the axes of a point's array, as reports print them."""
    last = name.rsplit(".", 1)[-1]
    if last in ("scores", "weights"):
        return "row", "head", "position", "key"
    if last in ("q_rotated", "k_rotated"):
        return "row", "head", "position", "unit"
    return "row", "position", "unit"


def form(name: str) -> str:
    """Return the shape of a point's array in the letters of ``tinyxp.model``."""
    return _SHAPES.get(kind(name), "(b, t, d)")
