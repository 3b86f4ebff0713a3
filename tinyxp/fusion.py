"""Projections of one input that lie one below another in memory, so that one product computes them all.

A library whose arrays can be views of one another keeps both forms in the same memory: ``attn.q.weight`` and
its neighbours are rows of ``attn.q+attn.k+attn.v.weight``.
"""

from __future__ import annotations

from tinyxp.config import Config
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array

JOINT = (("attn.q", "attn.k", "attn.v"), ("mlp.gate", "mlp.up"))
"""What reads the same input; joined, they stand under their names with ``+`` between."""


def laid_together(arrays: dict[str, Array], config: Config, backend: Backend) -> dict[str, Array]:
    """The same parameters, those that are projected together now rows of one array each.

    Left as they are: those that lie so already, those of several dtypes or on several devices, and all where
    the library has no views. The given dictionary is changed group by group, so that no second copy of the
    whole is alive where nobody else holds the arrays.
    """
    if not backend.has_views:
        return arrays
    for names in _groups(config, arrays):
        parts = [arrays[name] for name in names]
        kinds = {(str(part.dtype), str(backend.device_of(part))) for part in parts}
        if len(kinds) > 1 or backend.joined(parts) is not None:
            continue
        whole, start = backend.xp.concat(parts, axis=0), 0
        for name, part in zip(names, parts, strict=True):
            stop = start + part.shape[0]
            arrays[name], start = whole[start:stop, ...], stop
    return arrays


def joined(params: Params) -> Params:
    """The same parameters, whose blocks hold joint projections too wherever they lie together."""
    backend, blocks = params.backend, []
    if params.is_joined or not backend.has_views:
        return params
    for i in range(params.config.n_layers):
        block = dict(params.block(i))
        for names in JOINT:
            kinds = [kind for kind in ("weight", "bias") if f"{names[0]}.{kind}" in block]
            whole = {
                f"{'+'.join(names)}.{kind}": backend.joined([block[f"{name}.{kind}"] for name in names])
                for kind in kinds
            }
            if all(x is not None for x in whole.values()):
                block |= {name: x for name, x in whole.items() if x is not None}
        blocks.append(block)
    return params.held_as(params._arrays, blocks)


def _groups(config: Config, arrays: dict[str, Array]) -> list[list[str]]:
    """The names that are to lie together, block by block."""
    found = []
    for i in range(config.n_layers):
        for names in JOINT:
            for kind in ("weight", "bias"):
                group = [f"blocks.{i}.{name}.{kind}" for name in names]
                if all(name in arrays for name in group):
                    found.append(group)
    return found
