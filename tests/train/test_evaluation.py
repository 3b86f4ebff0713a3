"""Evaluation: the mean over all targets, however the windows are taken together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, host, libraries
from tinyxp import ops
from tinyxp.text.windows import Windows
from tinyxp.train import evaluate

from .runs import TRAIN, model

GAPS = TRAIN.targets[:7].copy()
GAPS[0, 3:], GAPS[1], GAPS[4, 1:], GAPS[6, :5] = -100, -100, -100, -100
WINDOWS = Windows(TRAIN.ids[:7], GAPS)
"""Seven windows with unequal numbers of targets, one with none."""


def exact(params: tinyxp.Params, windows: Windows) -> float:
    """The mean, in float64 on NumPy."""
    params = params.to(np, dtype="float64")
    return float(tinyxp.loss(params, *windows))


@pytest.mark.parametrize("config", [GPT2_CONFIG, LLAMA_CONFIG], ids=["gpt2", "llama"])
@pytest.mark.parametrize("library", libraries("numpy", "torch"))
def test_it_does_not_depend_on_how_many_windows_go_together(config: tinyxp.Config, library: str) -> None:
    params = model(config, library)
    expected = exact(params, WINDOWS)
    for batch in (1, 2, 3, 4, 5, 6, 7, 8, 100):
        assert evaluate(params, WINDOWS, batch=batch) == pytest.approx(expected, rel=1e-6), batch


def test_it_does_not_depend_on_it_under_a_compiler_either() -> None:
    params = model(LLAMA_CONFIG, "jax")
    for batch in (1, 3, 7):
        assert evaluate(params, WINDOWS, batch=batch) == pytest.approx(exact(params, WINDOWS), rel=1e-6)


@pytest.mark.parametrize("library", libraries("numpy", "torch"))
def test_one_batch_is_the_loss(library: str) -> None:
    params = model(LLAMA_CONFIG, library)
    whole = float(host(tinyxp.loss(params, *WINDOWS)))
    assert evaluate(params, WINDOWS, batch=7) == pytest.approx(whole, rel=2e-7)
    pure = dict.fromkeys(params.backend.engine.training_kernels)
    pure = {name: getattr(ops, name) for name in pure}
    assert evaluate(params, WINDOWS, batch=7, kernels=pure) == pytest.approx(whole, rel=2e-7)


def test_a_batch_that_is_filled_up_has_the_shape_of_the_others() -> None:
    shapes = []

    def linear_cross_entropy(x: Any, weight: Any, targets: Any, **more: Any) -> Any:
        shapes.append((x.shape, int((targets != -100).sum())))
        return ops.linear_cross_entropy(x, weight, targets, **more)

    evaluate(drawn(LLAMA_CONFIG), WINDOWS, batch=3, kernels={"linear_cross_entropy": linear_cross_entropy})
    counts = [int((GAPS[i : i + 3] != -100).sum()) for i in (0, 3, 6)]
    assert shapes == [((3, 8, 8), count) for count in counts]


def test_it_takes_kernels_of_the_caller() -> None:
    params = drawn(LLAMA_CONFIG)
    wrong = evaluate(params, WINDOWS, kernels={"silu": lambda x, *, xp: x})
    assert abs(wrong - evaluate(params, WINDOWS)) > 1e-4


def test_torch_keeps_no_graph_and_changes_nothing() -> None:
    torch = pytest.importorskip("torch")
    params = model(LLAMA_CONFIG, "torch")
    tracked = params.replace({name: x.clone().requires_grad_() for name, x in params.items()})
    graphs = []

    def silu(x: Any, *, xp: Any) -> Any:
        graphs.append(x.requires_grad)
        return torch.nn.functional.silu(x)

    found = evaluate(tracked, WINDOWS, kernels={"silu": silu})
    assert found == evaluate(params, WINDOWS)
    assert not any(graphs)
    assert all(x.grad is None for x in tracked.values())


def test_torchs_eight_bits_can_be_evaluated() -> None:
    """Their head has a product of its own."""
    pytest.importorskip("torch")
    params = model(LLAMA_CONFIG, "torch")
    found = evaluate(params.backend.engine.quantize(params), WINDOWS)
    assert found != evaluate(params, WINDOWS)
    assert found == pytest.approx(evaluate(params, WINDOWS), rel=0.02)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_parameters_may_be_narrow(dtype: str) -> None:
    params = model(LLAMA_CONFIG, "torch")
    assert evaluate(params.to(dtype=dtype), WINDOWS) == pytest.approx(evaluate(params, WINDOWS), rel=0.02)


@pytest.mark.parametrize("batch", [0, -1, 2.5, None, True])
def test_a_bad_batch_is_named(batch: Any) -> None:
    with pytest.raises(ValueError, match=f"batch is {batch}; it must be an integer of 1 or more"):
        evaluate(drawn(LLAMA_CONFIG), WINDOWS, batch=batch)


def test_params_must_be_params() -> None:
    with pytest.raises(ValueError, match="params is a dict; it must be tinyxp.Params"):
        evaluate({}, WINDOWS)  # type: ignore[arg-type]
