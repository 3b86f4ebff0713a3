"""Every value of one forward pass, by name."""

from __future__ import annotations

from typing import Any

from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.typing import Array, Namespace


def trace(
    params: Params, ids: Any, *, xp: Namespace | None = None, positions: Any = None, mask: Any = None
) -> dict[str, Array]:
    """Run ``forward`` and return trace point -> array, in the order of the computation.

    Names and shapes: ``embed`` (b, t, d); for each block ``blocks.0.attn_norm``, ``.attn.q``, ``.attn.k``,
    ``.attn.v`` (b, t, heads*hd), ``.attn.q_rotated`` (b, h, t, hd), ``.attn.k_rotated`` (b, g, t, hd), both
    with rotary positions only, ``.attn.scores`` (scaled, before the mask) and ``.attn.weights`` (b, h, t, s),
    ``.attn.heads``, ``.attn.out``, ``.attn_residual``, ``.mlp_norm``, ``.mlp.gate`` (gated MLPs only),
    ``.mlp.up``, ``.mlp.hidden``, ``.mlp.out``, ``.residual``; then ``final_norm`` and ``logits`` (b, t, n).
    Errors as for ``forward``.
    """
    points: dict[str, Array] = {}

    def record(name: str, x: Array) -> Array:
        points[name] = x
        return x

    forward(params, ids, xp=xp, positions=positions, mask=mask, tap=record)
    return points
