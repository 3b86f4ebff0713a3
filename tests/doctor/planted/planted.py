"""Every planted fault, where a traced comparison first sees it, and the row of the catalogue that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.reference import drawn, to_theirs
from tinyxp import Config
from tinyxp.config import GPT2

from .file_table import FILES
from .files import Plant
from .port_table import PORTS

_SIZES: dict[str, Any] = {"vocab_size": 61, "d_model": 32, "n_layers": 3, "n_heads": 4, "d_ff": 48}
BASES = {"gpt2": Config(**GPT2, **_SIZES, n_kv_heads=4), "llama": Config(**_SIZES, n_kv_heads=2)}
"""The models the faults are planted in, but for what a record changes of them."""

IDS = np.random.default_rng(3).integers(0, 61, (2, 12))
MASK = np.ones(IDS.shape, dtype=bool)
MASK[0, :3] = MASK[1, 10:] = False  # three columns of padding on the left, two on the right


class Planted(NamedTuple):
    """One fault.

    ``plant`` is the ``fault`` of a port, or what changes a folder's files. ``first`` is a pattern for the
    first trace point that differs, in the right run's order and of those that both runs have; a shape or a
    NaN differs too. ``key`` is the key of the fault in the doctor's catalogue, which must be named, and
    ``block`` the only block that it is in. ``config`` holds the fields of Config that the fault needs.
    ``needs_mask``: there is nothing to see without padding. ``logits_silent``: the logits are right.
    """

    name: str
    family: str
    how: str
    plant: str | Plant
    first: str
    key: str
    block: int | None
    config: Mapping[str, Any] = MappingProxyType({})
    needs_mask: bool = False
    logits_silent: bool = False

    def __str__(self) -> str:
        return f"{self.family}-{self.how}-{self.name.replace(' ', '_')}"


def config_of(planted: Planted) -> Config:
    return replace(BASES[planted.family], **planted.config)


def state_of(config: Config) -> dict[str, np.ndarray]:
    """transformers' state dict, in float32: matrices of std 0.2, biases of 0.1, norms 1 and noise."""
    return to_theirs(dict(drawn(config)), config)


def open_port(
    how: str,
    family: str,
    state: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    fault: str | None = None,
) -> Any:
    """The port of that library, with ``logits`` and ``trace``; ``config`` is transformers' config.json."""
    ports: Any
    if how == "torch":
        pytest.importorskip("torch")
        from . import ports_torch as ports
    elif how == "jax":
        pytest.importorskip("jax")
        from . import ports_jax as ports
    else:
        from . import ports_numpy as ports
    make = ports.GPT2 if family == "gpt2" else ports.Llama
    return make(state, config, fault)


def _record(name: str, family: str, how: str, plant: str | Plant, *row: Any) -> Planted:
    first, named, *more = row
    key, _, block = named.partition(", block ")
    fields = more[0] if more else {}
    return Planted(name, family, how, plant, first, key, int(block) if block else None, **fields)


PLANTED: tuple[Planted, ...] = (
    *(_record(row[0], *place, *row) for place, rows in PORTS.items() for row in rows),
    *(_record(row[0], family, "file", *row[1:]) for family, rows in FILES.items() for row in rows),
)
