"""The ports are right without their fault, and every planted fault is first seen where its record says."""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn, host, libraries, their_model
from tinyxp import Config, Params
from tinyxp.dtypes import EPSILON

from .planted import BASES, IDS, MASK, PLANTED, Planted, config_of, open_port, state_of
from .port_table import LINEAR, LLAMA3

CHANGES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2 untied, erf": {"tie_embeddings": False, "mlp": "gelu"},
    "llama": {},
    "llama tied": {"tie_embeddings": True, "rope_theta": 100000.0, "norm_eps": 1e-6},
    "llama biases": {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True},
    "llama qwen2": {"attn_bias": True},
    "llama linear": {"rope_scaling": LINEAR},
    "llama llama3": {"rope_scaling": LLAMA3},
    "llama wide heads": {"head_dim": 12},
}
CONFIGS = {name: replace(BASES[name.split()[0]], **change) for name, change in CHANGES.items()}

ROUNDING = 1e-6
"""Of the largest number of a value: what another order of a sum may cost in float32."""


@pytest.mark.parametrize("how", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_right_port_is_as_right_as_tinyxp(name: str, mask: np.ndarray | None, how: str) -> None:
    config = CONFIGS[name]
    check(right_port(how, name.split()[0], config), drawn(config), IDS, mask)


@pytest.mark.parametrize("name", ["gpt2", "gpt2 untied, erf", "llama", "llama qwen2", "llama llama3"])
def test_a_right_port_is_as_right_as_transformers(name: str) -> None:
    torch = pytest.importorskip("torch")
    config = CONFIGS[name]
    with torch.no_grad():
        theirs = host(their_model(drawn(config))(torch.tensor(IDS)).logits)
    truth = tinyxp.forward(drawn(config).to(dtype="float64"), IDS)
    for how in ("numpy", "torch"):
        port = right_port(how, name.split()[0], config)
        assert far(port.logits(IDS), truth) <= 3.0 * far(theirs, truth)


@pytest.mark.parametrize("how", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("folder", ["stories260k", "gpt-nano-sort"])
def test_a_right_port_of_a_trained_model(folder: str, how: str, test_data: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    path = test_data / folder
    config = json.loads((path / "config.json").read_text())
    family = config["model_type"]
    params = tinyxp.load(path)
    ids = np.random.default_rng(4).integers(0, params.config.vocab_size, (3, 11))
    port = open_port(how, family, safetensors.load_file(path / "model.safetensors"), config)
    check(port, params, ids, None)


def check(port: Any, params: Params, ids: np.ndarray, mask: np.ndarray | None) -> None:
    """All points are there, in order, and no farther from float64 than 3 times what tinyxp's own float32 has
    lost up to there."""
    found = port.trace(ids, mask)
    truth = tinyxp.trace(params.to(dtype="float64"), ids, mask=mask)
    ours = tinyxp.trace(params, ids, mask=mask)
    assert list(found) == list(truth)
    lost = EPSILON["float32"]
    for name, x in truth.items():
        wanted, given, near = (real(name, y, mask) for y in (x, found[name], ours[name]))
        assert found[name].dtype == np.float32
        size = float(np.max(np.abs(wanted)))
        lost = max(lost, far(near, wanted) / size)
        assert far(given, wanted) <= 3.0 * lost * size, name
    logits = port.logits(ids, mask)
    assert far(logits, found["logits"]) <= ROUNDING * np.max(np.abs(logits))


def test_the_records_are_of_both_families_and_of_every_kind() -> None:
    assert len({str(planted) for planted in PLANTED}) == len(PLANTED)
    for family, base in BASES.items():
        assert base.to_hf()["model_type"] == family
        for how, least in (("torch", 20), ("numpy", 15), ("jax", 10), ("file", 20)):
            assert sum((p.family, p.how) == (family, how) for p in PLANTED) >= least


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_fault_is_first_seen_where_its_record_says(planted: Planted, tmp_path: Path) -> None:
    """And is silent before; there is a wide gap between rounding and the smallest fault."""
    apart = parting(planted, tmp_path, MASK if planted.needs_mask else None)
    seen = [name for name, distance in apart.items() if not distance <= ROUNDING]
    assert seen
    assert fnmatch.fnmatchcase(seen[0], planted.first), seen[0]
    assert not apart[seen[0]] <= 20.0 * ROUNDING
    if planted.logits_silent:
        assert apart["logits"] <= ROUNDING
    else:
        assert not apart["logits"] <= 20.0 * ROUNDING


@pytest.mark.parametrize("planted", [p for p in PLANTED if p.needs_mask], ids=str)
def test_without_padding_a_fault_of_padding_is_not_seen(planted: Planted, tmp_path: Path) -> None:
    assert max(parting(planted, tmp_path, None).values()) <= ROUNDING


def parting(planted: Planted, folder: Path, mask: np.ndarray | None) -> dict[str, float]:
    """For every point that both runs have, how far they are apart, of the right one's largest number."""
    right, wrong = traces(planted, folder, mask)
    apart = {}
    for name, x in right.items():
        if name in wrong:
            wanted = real(name, x, mask)
            is_alike = x.shape == wrong[name].shape
            found = far(real(name, wrong[name], mask), wanted) if is_alike else np.inf
            apart[name] = found / float(np.max(np.abs(wanted)))
    return apart


def traces(
    planted: Planted, folder: Path, mask: np.ndarray | None
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """The right run and the wrong one, of the same port or through files."""
    config = config_of(planted)
    if planted.how != "file":
        fault = planted.plant
        assert isinstance(fault, str)
        port = open_port(planted.how, planted.family, state_of(config), config.to_hf(), fault)
        return right_port(planted.how, planted.family, config).trace(IDS, mask), port.trace(IDS, mask)
    assert not isinstance(planted.plant, str)
    tinyxp.save(drawn(config), folder / "model")
    wrong = tinyxp.load(planted.plant(folder / "model"))
    return tinyxp.trace(drawn(config), IDS), tinyxp.trace(wrong, IDS)


@functools.cache
def right_port(how: str, family: str, config: Config) -> Any:
    return open_port(how, family, state_of(config), config.to_hf())


def real(name: str, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """What belongs to real tokens: of (b, t, ...), (b, heads, t, hd), and scores and weights (b, h, t, s)."""
    if mask is None:
        return x
    if x.ndim == 4:
        x = x.swapaxes(1, 2)
    if name.endswith((".scores", ".weights")):
        x = np.where(mask[:, None, None, :], x, 0.0)
    return x[mask]


def far(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
