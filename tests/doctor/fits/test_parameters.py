"""Parameters that are read off products and norms of known inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.doctor.models import CONFIGS, GPT2_SMALL, IDS, LLAMA_SMALL, traced, with_weight
from tests.reference import drawn
from tinyxp import Config
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.parameters import find_other_weights, fit_bias, fit_norm_weight, fit_other_matrix
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.traces import Batch

BIASED = replace(LLAMA_SMALL, attn_bias=True)
RNG = np.random.default_rng(0)


def side(config: Config, name: str, edit: Callable[[Any], Any]) -> Evidence:
    """The right model, and the points of one with another parameter."""
    params = drawn(config)
    points = traced(with_weight(params, name, edit), IDS)
    return Evidence(WeightSource.of_params(params), Batch(IDS), points, "float32")


def shuffled(x: np.ndarray) -> np.ndarray:
    return x[np.r_[1:8, 0, 8 : len(x)]].copy()


def one_row(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[3] *= 1.5
    return y


def bent(x: np.ndarray) -> np.ndarray:
    y: np.ndarray = np.sin(5.0 * x)
    return y


@pytest.mark.parametrize(
    ("config", "name", "source", "point"),
    [
        (LLAMA_SMALL, "blocks.0.attn.v", "blocks.1.attn.v", "blocks.0.attn.v"),
        (LLAMA_SMALL, "head", "embed", "logits"),
        (BIASED, "blocks.1.attn.q", "blocks.0.attn.q", "blocks.1.attn.q"),
    ],
)
def test_another_matrix(config: Config, name: str, source: str, point: str) -> None:
    params = drawn(config)
    ends = [end for end in ("weight", "bias") if f"{name}.{end}" in params]
    other = params
    for end in ends:
        other = with_weight(other, f"{name}.{end}", lambda x, end=end: np.array(params[f"{source}.{end}"]))  # type: ignore[misc]
    evidence = Evidence(WeightSource.of_params(params), Batch(IDS), traced(other, IDS), "float32")
    fit = fit_other_matrix(evidence, evidence.right, point)
    assert fit is not None
    assert (fit[0].key, fit[1].is_fault) == (f"{source} in place of {name}", False)
    assert fit[0].change is not None


def test_rows_in_another_order() -> None:
    evidence = side(LLAMA_SMALL, "blocks.0.attn.q.weight", shuffled)
    fit = fit_other_matrix(evidence, evidence.right, "blocks.0.attn.q")
    assert fit is not None
    assert fit[0].key == "attn.q rows reordered"
    assert "1, 2, 3, 4, 5, 6, 7, 0... (8 of 32 moved)" in fit[0].says


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (np.zeros_like, "dropped"),
        (lambda b: 2 * b, "added twice"),
        (lambda b: -b, "subtracted"),
        (lambda b: b / 2, "halved"),
        (lambda b: b[::-1].copy(), "another one"),
    ],
)
def test_biases(edit: Callable[[Any], Any], what: str) -> None:
    evidence = side(BIASED, "blocks.0.attn.k.bias", edit)
    fit = fit_bias(evidence, evidence.right, "blocks.0.attn.k")
    assert fit is not None
    assert (fit[0].key, fit[1].is_fault) == (f"blocks.0.attn.k bias {what}", False)


def test_a_bias_that_the_model_does_not_have() -> None:
    evidence = side(LLAMA_SMALL, "blocks.0.attn.k.weight", lambda x: x)
    points = {**evidence.points, "blocks.0.attn.k": evidence.points["blocks.0.attn.k"] + np.float32(0.3)}
    evidence = Evidence(evidence.weights, evidence.batch, points, "float32")
    fit = fit_bias(evidence, evidence.right, "blocks.0.attn.k")
    assert fit is not None
    assert fit[0].key == "blocks.0.attn.k bias one that this model does not have"


@pytest.mark.parametrize(
    ("point", "name", "edit", "key", "words"),
    [
        ("blocks.0.mlp.up", "blocks.0.mlp.up", one_row, "other weights: blocks.0.mlp.up", "in row 3"),
        ("blocks.0.mlp.up", "blocks.0.mlp.up", bent, "other weights: blocks.0.mlp.up", "is neither this"),
        ("blocks.0.attn.out", "blocks.0.attn.o", np.zeros_like, "attention left out", "its result is 0"),
        ("logits", "head", bent, "other weights: head", "is neither this model's nor"),
    ],
)
def test_other_weights(point: str, name: str, edit: Callable[[Any], Any], key: str, words: str) -> None:
    evidence = side(LLAMA_SMALL, f"{name}.weight", edit)
    fault = find_other_weights(evidence, evidence.right, point)
    assert fault is not None
    assert fault.key == key
    assert words in fault.says
    assert fault.change is None


def test_a_tied_model_whose_head_is_another_matrix() -> None:
    evidence = side(CONFIGS["qwen2"], "final_norm.weight", lambda x: x)
    points = {**evidence.points, "logits": np.sin(9.0 * evidence.points["logits"])}
    evidence = Evidence(evidence.weights, evidence.batch, points, "float32")
    fault = find_other_weights(evidence, evidence.right, "logits")
    assert fault is not None
    assert fault.key == "head not tied"


@pytest.mark.parametrize("config", [LLAMA_SMALL, GPT2_SMALL], ids=["llama", "gpt2"])
def test_norm_weights(config: Config) -> None:
    weight = "blocks.1.mlp_norm.weight"
    noise = 1.0 + 0.1 * RNG.normal(size=32).astype(np.float32)
    evidence = side(config, weight, lambda x: x * noise)
    fit = fit_norm_weight(evidence, evidence.right, "blocks.1.mlp_norm")
    assert fit is not None
    assert (fit[0].key, fit[1].is_fault) == ("other weights: blocks.1.mlp_norm", False)
    first = np.array(drawn(config)["blocks.0.attn_norm.weight"])
    evidence = side(config, weight, lambda x: first)
    fit = fit_norm_weight(evidence, evidence.right, "blocks.1.mlp_norm")
    assert fit is not None
    assert fit[0].key == "blocks.0.attn_norm in place of blocks.1.mlp_norm"
