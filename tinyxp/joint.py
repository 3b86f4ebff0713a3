"""Joint projections: matrices that multiply the same input, adjacent in memory, multiplied in one product.

In a library whose arrays can be views of one another both forms share memory: ``attn.q.weight``,
``attn.k.weight`` and ``attn.v.weight`` are rows of ``attn.q+attn.k+attn.v.weight``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tinyxp import ops
from tinyxp.config import Config
from tinyxp.registry import Backend
from tinyxp.typing import Array, Namespace

JOINT = (("attn.q", "attn.k", "attn.v"), ("mlp.gate", "mlp.up"))
"""The projections that read the same input; joined, their names are linked by ``+``."""


def lay_together(arrays: dict[str, Array], config: Config, backend: Backend) -> dict[str, Array]:
    """Make the matrices of each joint projection rows of one array, and return the dictionary.

    A group stays as it is if it is adjacent already, or is of several dtypes or devices; so do all of them if
    the library has no views. The dictionary is changed group by group, so that no second copy of the whole
    model is alive unless the caller holds the arrays.
    """
    if not backend.has_views:
        return arrays
    for names in _groups(config, arrays):
        parts = [arrays[name] for name in names]
        kinds = {(str(part.dtype), str(backend.device_of(part))) for part in parts}
        if len(kinds) > 1 or backend.join_views(parts) is not None:
            continue
        whole, start = backend.xp.concat(parts, axis=0), 0
        for name, part in zip(names, parts, strict=True):
            stop = start + part.shape[0]
            arrays[name], start = whole[start:stop, ...], stop
    return arrays


def join_block(block: dict[str, Array], backend: Backend) -> dict[str, Array]:
    """Return one block's parameters and, besides them, its joint projections that are adjacent in memory."""
    joined = dict(block)
    for names in JOINT:
        kinds = [kind for kind in ("weight", "bias") if f"{names[0]}.{kind}" in block]
        views = {
            f"{'+'.join(names)}.{kind}": backend.join_views([block[f"{name}.{kind}"] for name in names])
            for kind in kinds
        }
        if all(view is not None for view in views.values()):
            joined |= {name: view for name, view in views.items() if view is not None}
    return joined


def project(
    x: Array,
    weights: Mapping[str, Array],
    names: Sequence[str],
    *,
    xp: Namespace,
    linear: Callable[..., Array] = ops.linear,
) -> list[Array]:
    """``tinyxp.ops.project``, in one product if the projections are joined. x (..., i) -> (..., o) each."""
    joint = "+".join(names)
    if f"{joint}.weight" not in weights:
        return ops.project(x, weights, names, xp=xp, linear=linear)
    y = linear(x, weights[f"{joint}.weight"], weights.get(f"{joint}.bias"), xp=xp)
    start, parts = 0, []
    for name in names:
        stop = start + weights[f"{name}.weight"].shape[0]
        parts.append(y[..., start:stop])
        start = stop
    return parts


def _groups(config: Config, arrays: dict[str, Array]) -> list[list[str]]:
    """The names of adjacent parameters, block by block."""
    groups = []
    for i in range(config.n_layers):
        for names in JOINT:
            for kind in ("weight", "bias"):
                group = [f"blocks.{i}.{name}.{kind}" for name in names]
                if all(name in arrays for name in group):
                    groups.append(group)
    return groups
