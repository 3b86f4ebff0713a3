"""What a side is made of, what it computes in, and what it gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn, libraries
from tinyxp import plugins
from tinyxp.doctor import Batch, Recorded, as_side, compare, parse
from tinyxp.doctor.points import points_of
from tinyxp.doctor.sides import ModelSide

from .models import CONFIGS, IDS, LLAMA_SMALL, gpt2, llama, port, traced, with_weight

BATCH = Batch(IDS)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("family", CONFIGS)
def test_a_model_gives_what_trace_gives(family: str, library: str) -> None:
    params = drawn(CONFIGS[family]).to(tinyxp.backend(library).xp)
    side = as_side(params)
    (found, dtype), wanted = side.trace(BATCH), traced(params, IDS)
    assert list(found) == list(wanted) == points_of(CONFIGS[family])
    assert all(np.array_equal(found[name], x) for name, x in wanted.items())
    assert dtype == "float32"
    assert (side.config, side.batch, side.model) == (CONFIGS[family], None, None)


def test_weights_are_as_exact_as_the_file(tmp_path: Path) -> None:
    """Though the run's own are rounded."""
    tinyxp.save(llama(), tmp_path)
    coarse = parse(f"{tmp_path}@numpy:float16")
    assert coarse.weights is not None
    name = "blocks.0.attn.q.weight"
    assert np.array_equal(coarse.weights.read(name), llama()[name])
    assert not np.array_equal(coarse.params[name], llama()[name])  # type: ignore[attr-defined]


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("point", ["embed", "blocks.0.attn.weights", "blocks.1.mlp.hidden", "final_norm"])
def test_a_run_goes_on_from_the_values_that_are_put_in(point: str, library: str) -> None:
    params = llama().to(tinyxp.backend(library).xp)
    side = as_side(params)
    right = traced(llama(), IDS)
    value = right[point][::-1].copy()
    found = side.trace(BATCH, patch={point: value}).points
    wanted = port(llama(), lambda name, x: value if name == point else x)(IDS)
    assert np.array_equal(found[point], value)
    assert not np.array_equal(found["logits"], right["logits"])
    for name, x in wanted.items():
        assert found[name] == pytest.approx(x, rel=1e-4, abs=1e-4), name


def test_who_can_be_run_again() -> None:
    assert as_side(llama()).can_patch
    assert not as_side(port(llama())).can_patch
    assert not as_side(Recorded(BATCH, traced(llama(), IDS))).can_patch


@pytest.mark.parametrize("wrong", [None, 3, [1, 2], b"holmes", {"logits": 1}])
def test_what_is_no_side_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"a side is .*; it must be a specification"):
        as_side(wrong)


def test_a_path_is_a_specification(tmp_path: Path) -> None:
    tinyxp.save(gpt2(), tmp_path / "model")
    side = as_side(tmp_path / "model")
    assert isinstance(side, ModelSide)
    assert side.config == CONFIGS["gpt2"]


def test_a_trace_without_a_point_is_refused() -> None:
    with pytest.raises(ValueError, match="A: holds no trace point"):
        compare(Recorded(BATCH, {}), llama())


def test_transformers_own_is_a_side_with_weights(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tinyxp.save(llama(), tmp_path)
    side = parse(f"hf:{tmp_path}")
    assert side.config == LLAMA_SMALL
    assert side.weights is not None
    name = "blocks.1.attn.k.weight"
    assert np.array_equal(side.weights.read(name), llama()[name])
    assert (side.can_patch, side.model) == (True, str(tmp_path))
    value = traced(llama(), IDS)["blocks.0.residual"][::-1].copy()
    found = side.trace(BATCH, patch={"blocks.0.residual": value}).points
    wanted = as_side(llama()).trace(BATCH, patch={"blocks.0.residual": value}).points
    assert found["logits"] == pytest.approx(wanted["logits"], rel=1e-4, abs=1e-5)
    assert (side.dtype, side.trace(BATCH).dtype) == (None, "float32")


class Mlx:
    """A third party's entry in the group tinyxp.sides."""

    BACKEND = "numpy"
    opened: list[Any] = []  # noqa: RUF012

    @classmethod
    def open_model(cls, path: Path, dtype: str | None) -> Any:
        cls.opened.append((path, dtype))
        return tinyxp.load(path, dtype=dtype)

    @staticmethod
    def trace(model: Any, ids: np.ndarray, *, mask: Any, patch: Any) -> Any:
        return traced(model, ids, mask) | (patch or {})


def test_a_third_party_adds_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tinyxp.save(llama(), tmp_path)
    monkeypatch.setattr(plugins, "entries", lambda group: {"mlx": Mlx} if group == plugins.SIDES else {})
    monkeypatch.setattr(plugins, "load", lambda group, name: {"mlx": Mlx}[name])
    for text, dtype in ((f"mlx:{tmp_path}", None), (f"mlx:{tmp_path}@numpy:float64", "float64")):
        side = parse(text)
        assert (side.name, side.config, side.model) == (text, LLAMA_SMALL, str(tmp_path))
        assert (side.can_patch, side.can_rerun, side.reads_checkpoint, side.params) == (
            True,
            True,
            True,
            None,
        )
        found = side.trace(BATCH)
        assert found.dtype == (dtype or "float32")
        assert Mlx.opened.pop() == (tmp_path, dtype)
        side.trace(BATCH)
        assert Mlx.opened == []  # opened once
        value = np.zeros_like(found.points["embed"])
        assert side.trace(BATCH, patch={"embed": value}).points["embed"] is value
    with pytest.raises(ValueError, match="mlx: chooses its own backend; after @ only :DTYPE may follow"):
        parse(f"mlx:{tmp_path}@torch")
    with pytest.raises(ValueError, match="mlx:: a model, a folder or a file, must follow mlx:"):
        parse("mlx:")


def test_a_run_leaves_its_side_as_it_was(tmp_path: Path) -> None:
    tinyxp.save(llama(), tmp_path)
    for side in (
        parse(str(tmp_path)),
        as_side(port(llama())),
        as_side(Recorded(BATCH, traced(llama(), IDS))),
    ):
        assert side.dtype is None
        assert side.trace(BATCH).dtype == side.trace(BATCH).dtype == "float32"
        assert side.dtype is None


def test_a_requested_dtype_is_that_of_the_trace() -> None:
    named = replace(as_side(port(llama())), dtype="bfloat16")
    assert named.trace(BATCH).dtype == "bfloat16"
    recorded = replace(as_side(Recorded(BATCH, traced(llama(), IDS))), dtype="float16")
    assert recorded.trace(BATCH).dtype == "float16"


def test_what_a_side_can_do() -> None:
    model, function = as_side(llama()), as_side(port(llama()))
    recorded = as_side(Recorded(BATCH, traced(llama(), IDS)))
    sides = (model, function, recorded)
    assert [side.can_rerun for side in sides] == [True, True, False]
    assert [side.reads_checkpoint for side in sides] == [True, False, False]
    assert [side.params is None for side in sides] == [False, True, True]
    assert [side.weights is None for side in sides] == [False, True, True]


def test_a_model_runs_other_parameters_in_the_same_way() -> None:
    side = as_side(llama().to(dtype="float64"), "B")
    other = with_weight(llama(), "head.weight", np.negative).to(dtype="float64")
    changed = side.with_params(other)
    assert (changed.name, changed.dtype) == ("B", "float64")
    assert np.array_equal(changed.trace(BATCH).points["logits"], -side.trace(BATCH).points["logits"])


def test_how_to_request_a_dtype(tmp_path: Path) -> None:
    tinyxp.save(llama(), tmp_path)
    suggestions = {
        as_side(port(llama()), "port.py:f"): "name it port.py:f@:float16",
        as_side(llama()): "name it MODEL@numpy:float16",
        parse(f"{tmp_path}@+kernels"): f"name it {tmp_path}@numpy+kernels:float16",
    }
    for side, suggestion in suggestions.items():
        assert side.suggest_dtype("float16") == suggestion


@pytest.mark.parametrize(("flags", "can_patch"), [("", True), ("+jit", False)])
def test_compiled_code_cannot_be_patched(flags: str, can_patch: bool) -> None:
    pytest.importorskip("jax")
    assert parse(f"holmes@jax{flags}").can_patch is can_patch
