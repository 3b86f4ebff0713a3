"""Two faults at once: one in the code of a port, one in the files that it reads."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp import Config
from tinyxp.doctor import Diagnosis, diagnose

from .causes import is_named
from .planted import BASES, IDS, PLANTED, Planted, open_port

KINDS = (
    r"^(vocabulary|embedding) rows",
    r"^positions off|^position rows",
    r"^eps 1e",
    r"^layer \d (doubled|in place)",
    r"^layer \d dropped",
    r"^qkv cut",
    r"bias(es)? dropped",
    r"transposed$",
    r"^(silu|gelu|gelu_tanh|relu) for",
    r"^k .+ with \d heads",
    r"^[qk] rows",
    r"^theta",
    r"^rope scaling",
)
"""Patterns of keys of one kind, of which one can hide the other."""


class Pair(NamedTuple):
    port: Planted
    file: Planted
    config: Config

    def __str__(self) -> str:
        return f"{self.port}+{self.file}"


def pairs(count: int, seed: int) -> list[Pair]:
    """Random pairs of one family, whose causes are not of one kind and whose configs agree."""
    rng, found = random.Random(seed), dict[str, Pair]()
    whole = ("bfloat16", "extra bos", "dropout", "post-norm")  # each of which changes everything by itself
    ports = [p for p in PLANTED if p.how != "file" and not p.needs_mask and p.name not in whole]
    files = [p for p in PLANTED if p.how == "file" and "gguf" not in p.name]
    while len(found) < count:
        port, file = rng.choice(ports), rng.choice(files)
        fields = {**port.config, **file.config}
        clash = any(p.config.get(name, x) != x for p in (port, file) for name, x in fields.items())
        if port.family == file.family and kind(port) != kind(file) and not clash:
            pair = Pair(port, file, replace(BASES[port.family], **fields))
            found[str(pair)] = pair
    return list(found.values())


IN_PAIRS = {
    "embedding rows shifted by +1": ("vocabulary rows shifted by +1",),
    "head rows shifted by +1": ("vocabulary rows shifted by +1",),
    "k rows interleaved": ("k weight rows interleaved",),
    "q rows interleaved": ("q weight rows interleaved",),
    "vocabulary rows shifted by +1": ("embedding rows shifted by +1",),
}
"""Keys that a fault may have too, if the other fault of a pair changes what else is shifted or biased."""


def kind(planted: Planted) -> str:
    """The first of ``KINDS`` that its key has, else the key."""
    return next((kind for kind in KINDS if re.search(kind, planted.key)), planted.key)


PAIRS = pairs(40, seed=1)


def diagnosed(pair: Pair, folder: Path) -> Diagnosis:
    """The diagnosis of a port with its fault that reads faulty files."""
    from safetensors.numpy import load_file

    params = drawn(pair.config)
    tinyxp.save(params, folder / "model")
    assert not isinstance(pair.file.plant, str)
    files = pair.file.plant(folder / "model")
    assert isinstance(pair.port.plant, str)
    config = json.loads((files / "config.json").read_text())
    state = dict(load_file(files / "model.safetensors"))
    port = open_port(pair.port.how, pair.port.family, state, config, pair.port.plant)

    def wrong(ids: np.ndarray) -> dict[str, np.ndarray]:
        return dict(port.trace(ids))

    return diagnose(params, wrong, IDS)


def named(pair: Pair, found: Diagnosis) -> bool:
    """Whether both faults are among the causes, and hardly anything else."""
    every = range(pair.config.n_layers)
    places: dict[str, set[int]] = {}
    for cause in found.causes:
        for key in cause.keys:
            places.setdefault(key, set()).update(every if cause.blocks is None else cause.blocks)
    singles = [
        replace(found.causes[0], keys=(key,), blocks=None if set(every) <= where else tuple(sorted(where)))
        for key, where in places.items()
    ]

    def is_among(planted: Planted) -> bool:
        keys = (planted.key, *IN_PAIRS.get(planted.key, ()))
        return any(is_named(planted._replace(key=key), cause) for key in keys for cause in singles)

    return is_among(pair.port) and is_among(pair.file) and len(singles) <= 3


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_both_are_named(pair: Pair, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    found = diagnosed(pair, tmp_path)
    assert named(pair, found), [cause.keys for cause in found.causes]
