"""The objective: dropout, narrow numbers, kernels, and the windows that a model can learn from."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, host, libraries
from tinyxp import ops
from tinyxp.text.windows import Windows
from tinyxp.train import Recipe, evaluate, fit
from tinyxp.train.objective import (
    batch_loss,
    check_windows,
    draw_dropout,
    dropout_points,
    dropout_tap,
    training_kernels,
)

from .runs import HELD_OUT, LIBRARIES, TRAIN, model

PURE = ops.Kernels()
IDS, TARGETS = TRAIN.ids[:3], TRAIN.targets[:3]


@pytest.mark.parametrize("library", libraries("numpy", "torch"))
def test_without_dropout_and_narrow_numbers_it_is_the_loss(library: str) -> None:
    params = model(LLAMA_CONFIG, library)
    recipe = Recipe(steps=1)
    assert draw_dropout(recipe, 0, (3, 8), params) is None
    found = batch_loss(params, IDS, TARGETS, None, kernels=PURE, recipe=recipe)
    assert float(host(found)) == float(host(tinyxp.loss(params, IDS, TARGETS)))


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_parameters_are_converted_only_to_another_dtype(
    monkeypatch: pytest.MonkeyPatch, dtype: str | None
) -> None:
    module = importlib.import_module("tinyxp.train.objective")
    seen: list[tinyxp.Params] = []
    monkeypatch.setattr(module, "loss", lambda params, *arguments, **more: seen.append(params))
    params = model(LLAMA_CONFIG, "torch")
    batch_loss(params, IDS, TARGETS, None, kernels=PURE, recipe=Recipe(steps=1, dtype=dtype))
    assert (seen[0] is params) == (dtype != "bfloat16")
    assert str(seen[0].dtype) == f"torch.{dtype or 'float32'}"


def test_a_window_may_be_as_long_as_the_context_but_no_longer() -> None:
    params, length = drawn(GPT2_CONFIG), GPT2_CONFIG.max_seq_len
    ids = np.arange(2 * length).reshape(2, length) % 11
    windows = Windows(ids, ids)
    assert check_windows("train", windows, params).ids is ids
    assert np.isfinite(evaluate(params, windows))
    longer = Windows(*(np.pad(x, ((0, 0), (0, 1))) for x in windows))
    with pytest.raises(
        ValueError, match=f"train has windows of {length + 1} tokens; max_seq_len is {length}"
    ):
        check_windows("train", longer, params)
    assert np.isfinite(evaluate(drawn(LLAMA_CONFIG), longer))  # rotary positions go on


def test_dropout_falls_on_the_embedding_and_on_what_each_block_adds() -> None:
    params, recipe = drawn(LLAMA_CONFIG), Recipe(steps=1, dropout=0.5)
    kept = draw_dropout(recipe, 0, (3, 8), params)
    assert kept is not None
    seen: dict[str, np.ndarray] = {}
    tap = dropout_tap(kept, 0.5, params)

    def watched(name: str, x: Any, /) -> Any:
        y = tap(name, x)
        seen[name] = (x, y)
        return y

    logits = tinyxp.forward(params, IDS, tap=watched)
    names = ["embed", "blocks.0.attn.out", "blocks.0.mlp.out", "blocks.1.attn.out", "blocks.1.mlp.out"]
    assert dropout_points(2) == names
    for name, (x, y) in seen.items():
        if name in names:
            wanted = np.where(kept[names.index(name)], 2.0 * x, 0.0)
            np.testing.assert_array_equal(y, wanted)
            assert y.dtype == np.float32
        else:
            assert y is x
    dropped = batch_loss(params, IDS, TARGETS, kept, kernels=PURE, recipe=recipe)
    assert float(dropped) == pytest.approx(float(ops.cross_entropy(logits, TARGETS, xp=np)), rel=1e-6)
    assert abs(float(dropped) - float(tinyxp.loss(params, IDS, TARGETS))) > 1e-3


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_and_the_expected_value(share: float) -> None:
    params, recipe = drawn(LLAMA_CONFIG), Recipe(steps=1, dropout=share)
    kept = draw_dropout(recipe, 0, (100, 16), params)
    assert kept is not None
    assert kept.shape == (5, 100, 16, 8)
    spread = np.sqrt(share * (1 - share) / kept[0].size)
    assert np.abs(kept.mean((1, 2, 3)) - (1 - share)).max() < 4 * spread
    tap = dropout_tap(kept, share, params)
    y = tap("embed", np.ones((100, 16, 8), dtype=np.float32))
    assert float(y.mean()) == pytest.approx(1.0, abs=4 * spread / (1 - share))


def test_what_dropout_keeps_is_of_the_step_and_the_seed_alone() -> None:
    params = drawn(LLAMA_CONFIG)

    def kept(step: int, seed: int, library: str = "numpy") -> Any:
        there = params if library == "numpy" else model(LLAMA_CONFIG, library)
        return draw_dropout(Recipe(steps=9, dropout=0.5, seed=seed), step, (2, 3), there)

    np.testing.assert_array_equal(kept(3, 7), kept(3, 7, "torch"))
    for other in (kept(4, 7), kept(3, 8), kept(7, 3)):
        assert not np.array_equal(kept(3, 7), other)


@pytest.mark.parametrize("library", LIBRARIES)
def test_narrow_numbers_give_gradients_of_the_wide_parameters(library: str) -> None:
    params = model(LLAMA_CONFIG, library)
    backend = params.backend
    ids, targets = (backend.from_numpy(x.astype(backend.index_dtype)) for x in (IDS, TARGETS))
    found = {}
    for dtype in ("float32", "bfloat16"):

        def f(params: Any, dtype: str = dtype) -> Any:
            kernels = training_kernels(backend, None)
            return batch_loss(
                params, ids, targets, None, kernels=kernels, recipe=Recipe(steps=1, dtype=dtype)
            )

        found[dtype] = (
            backend.jit(backend.value_and_grad(f))(params)
            if library == "jax"
            else (backend.value_and_grad(f)(params))
        )
    (wide, exact), (narrow, rounded) = found["float32"], found["bfloat16"]
    assert host(narrow).dtype == np.float32
    assert float(host(narrow)) != float(host(wide))
    assert float(host(narrow)) == pytest.approx(float(host(wide)), rel=0.01)
    for name, g in rounded.items():
        assert host(g).dtype == np.float32
        size = np.linalg.norm(host(exact[name]))
        assert 0.0 < np.linalg.norm(host(g) - host(exact[name])) < 0.1 * size, name


def test_kernels_are_the_backends_for_gradients_and_the_callers_in_their_place() -> None:
    pytest.importorskip("torch")
    backend = tinyxp.backend("torch")
    ours = training_kernels(backend, {"silu": ops.silu})
    assert ours.silu is ops.silu
    assert ours.linear_cross_entropy is backend.engine.kernels["linear_cross_entropy"]
    assert training_kernels(backend, None).silu is backend.engine.kernels["silu"]
    assert training_kernels(backend, PURE) is PURE


@pytest.mark.parametrize("kernels", [3, {"softmaks": ops.softmax}, {"silu": 3}])
def test_bad_kernels_are_refused_at_the_call(kernels: Any) -> None:
    params = model(LLAMA_CONFIG, "torch")
    with pytest.raises(ValueError, match="kernels"):
        fit(params, TRAIN, None, Recipe(steps=1), kernels=kernels)
    with pytest.raises(ValueError, match="kernels"):
        evaluate(params, HELD_OUT, kernels=kernels)


def windows(ids: Any, targets: Any = None) -> Windows:
    return Windows(np.array(ids), np.array(ids if targets is None else targets))


@pytest.mark.parametrize(
    "given, message",
    [
        (windows([[1, 11]]), "has the id 11; the vocabulary size is 11"),
        (windows([[1, -100]]), "has the id -100; the vocabulary size is 11"),
        (windows([[1, -5]]), "has the id -5; the vocabulary size is 11"),
        (windows([[1, 2]], [[1, -1]]), "has the target -1; the vocabulary size is 11"),
        (windows([[1, 2]], [[11, -100]]), "has the target 11; the vocabulary size is 11"),
        (windows([[1, 2]], [[1, 2, 3]]), "has ids of shape (1, 2) and targets of shape (1, 3); both must be"),
        (windows(np.zeros((0, 4), int)), "has ids of shape (0, 4) and targets of shape (0, 4); both must be"),
        (windows(np.zeros((4, 0), int)), "has ids of shape (4, 0)"),
        (windows([1, 2, 3]), "has ids of shape (3,)"),
        (windows([[1.0, 2.0]]), "has ids of dtype float64; they must be integers"),
        (windows([[1, 2]], [[1.0, 2.0]]), "has targets of dtype float64; they must be integers"),
        (windows([[True, False]]), "has ids of dtype bool; they must be integers"),
        (windows([["a"]]), "has ids of dtype <U1; they must be integers"),
        (windows([[None]]), "has ids of dtype object; they must be integers"),
        (windows([[1, 2]], [[-100, -100]]), "has no target that counts; all are -100"),
        (windows([[0] * 17]), "has windows of 17 tokens; max_seq_len is 16"),
        ([[1, 2]], "is a list; it must be tinyxp.text.windows.Windows"),
        (None, "is a NoneType; it must be tinyxp.text.windows.Windows"),
    ],
)
def test_bad_windows_are_refused_at_the_call(given: Any, message: str) -> None:
    params = model(GPT2_CONFIG, "torch")
    with pytest.raises(ValueError, match=re.escape(f"train {message}")):
        fit(params, given, None, Recipe(steps=1))
    with pytest.raises(ValueError, match=re.escape(f"windows {message}")):
        evaluate(params, given)
    if given is not None:  # for there need not be any held out
        with pytest.raises(ValueError, match=re.escape(f"validation {message}")):
            fit(params, TRAIN, given, Recipe(steps=1))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint64"])
def test_windows_may_hold_any_integers(dtype: str) -> None:
    params = drawn(LLAMA_CONFIG)
    given = Windows(TRAIN.ids.astype(dtype), TRAIN.targets.astype(dtype))
    assert evaluate(params, given) == evaluate(params, TRAIN)
