"""The reference run: tinyxp's own forward in float64, with weights that are read one at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp import ops, registry
from tinyxp.doctor import Batch, reference_run
from tinyxp.doctor.reference_run import (
    WeightSource,
    library_with,
    run_reference,
    stream_params,
    widening_linear,
)

from .models import CONFIGS, IDS, llama, traced

MASK = np.arange(12) >= np.array([[0], [4]])


def run(weights: WeightSource, batch: Batch, **options: Any) -> dict[str, np.ndarray]:
    points: dict[str, np.ndarray] = {}

    def tap(name: str, x: np.ndarray) -> np.ndarray:
        points[name] = x
        return x

    run_reference(weights, batch, tap, **options)
    return points


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("family", CONFIGS)
def test_it_is_the_forward_pass(family: str, dtype: str, mask: Any) -> None:
    params = drawn(CONFIGS[family])
    points = run(WeightSource.of_params(params), Batch(IDS, mask), dtype=dtype)
    expected = traced(params.to(dtype=dtype), IDS, mask)
    assert list(points) == list(expected)
    for name, x in expected.items():
        assert points[name].dtype == dtype
        assert np.array_equal(points[name], x, equal_nan=True), name


def test_a_tap_may_replace_values() -> None:
    def tap(name: str, x: np.ndarray) -> np.ndarray:
        changed.append(x)
        return np.zeros_like(x) if name == "final_norm" else x

    changed: list[np.ndarray] = []
    run_reference(WeightSource.of_params(llama()), Batch(IDS), tap)
    assert not changed[-1].any()


def test_a_dtype_that_numpy_lacks_runs_elsewhere() -> None:
    torch = pytest.importorskip("torch")
    points = run(WeightSource.of_params(llama()), Batch(IDS), dtype="bfloat16")
    expected = traced(llama().to(torch, dtype="bfloat16"), IDS)
    assert library_with("float32") is library_with("float16") is tinyxp.backend("numpy")
    assert "bfloat16" in library_with("bfloat16").dtypes()
    assert np.max(np.abs(points["logits"] - expected["logits"])) < 0.1 * np.max(np.abs(expected["logits"]))


def test_a_dtype_that_no_library_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "loaded", list)
    monkeypatch.setattr(registry, "available_backends", lambda: {"torch": None})
    with pytest.raises(ValueError, match=r"dtype is 'bfloat16'; no installed library computes in it"):
        library_with("bfloat16")


@pytest.mark.parametrize("family", CONFIGS)
def test_only_the_rows_of_the_ids_are_embedded(family: str) -> None:
    params = drawn(CONFIGS[family])
    ids = np.array([[7, 3, 7]])
    backend = tinyxp.backend("numpy")
    streamed, renumbered = stream_params(
        WeightSource.of_params(params), ids, dtype="float32", backend=backend
    )
    assert streamed["embed.weight"].shape[0] == 2
    assert np.array_equal(streamed["embed.weight"][renumbered], params["embed.weight"][ids])
    head = "embed.weight" if params.config.tie_embeddings else "head.weight"
    assert np.array_equal(streamed["head.weight"], params[head])
    with pytest.raises(ValueError, match="ids holds 61"):
        stream_params(WeightSource.of_params(params), ids + 54, dtype="float32", backend=backend)


def test_matrices_are_widened_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=(2, 3, 5)), rng.normal(size=7).astype(np.float32)
    weight = rng.normal(size=(7, 5)).astype(np.float32)
    expected = ops.linear(x, weight.astype(np.float64), bias.astype(np.float64), xp=np)
    monkeypatch.setattr(reference_run, "CHUNK", 10)  # two rows at a time
    rows: list[int] = []
    linear = ops.linear

    def count(x: Any, weight: Any, bias: Any, *, xp: Any) -> Any:
        rows.append(weight.shape[0])
        return linear(x, weight, bias, xp=xp)

    monkeypatch.setattr(ops, "linear", count)
    np.testing.assert_allclose(widening_linear(x, weight, bias, xp=np), expected, rtol=1e-14)
    assert rows == [2, 2, 2, 1]
    assert widening_linear(x, weight.astype(np.float64), None, xp=np).dtype == np.float64
    assert rows[4:] == [7]


def test_weights_of_files_are_those_of_the_model(tmp_path: Path) -> None:
    tinyxp.save(llama(), tmp_path)
    source = WeightSource.of_file(tmp_path)
    assert source.config == replace(llama().config)
    for name, x in llama().items():
        assert np.array_equal(source.read(name), x)
