"""Numbers that are read off the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import evidence_of, right_variant, run
from tinyxp import Config
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import NumberFault, list_rows
from tinyxp.doctor.fits.numbers import fit_branch, fit_dropout, fit_factor, fit_number, minimise
from tinyxp.doctor.fits.values import Fit

ONE_HEAD = replace(LLAMA_SMALL, n_heads=1, n_kv_heads=1)


def evidence_with(config: Config, choice: str, value: float) -> Evidence:
    """A side that has this number in the row of a choice."""
    row = next(r for r in list_rows(config) if isinstance(r, NumberFault) and r.choice == choice)
    v = right_variant(config)
    points = {n: x.astype(np.float32) for n, x in run(v.with_faults(row.at(value))).items()}
    return Evidence(v.weights, v.batch, points, "float32")


def edited(point: str, edit: Callable[[np.ndarray], np.ndarray]) -> Evidence:
    """The right side, whose record of one point is edited."""
    evidence = evidence_of(LLAMA_SMALL)
    points = {**evidence.points, point: edit(evidence.points[point])}
    return Evidence(evidence.weights, evidence.batch, points, "float32")


def key_of(fit: Fit | None) -> str:
    assert fit is not None
    assert not fit[1].is_fault
    return fit[0].key


@pytest.mark.parametrize(
    ("config", "choice", "value", "point", "key"),
    [
        (LLAMA_SMALL, "theta", 63496.0, "blocks.0.attn.q_rotated", "theta 63496"),
        (LLAMA_SMALL, "theta", 3e8, "blocks.0.attn.q_rotated", "theta 3e+08"),
        (
            replace(LLAMA_SMALL, n_heads=1, n_kv_heads=1),
            "theta",
            777.0,
            "blocks.1.attn.k_rotated",
            "theta 777",
        ),
        (LLAMA_SMALL, "eps", 3e-4, "blocks.1.mlp_norm", "eps 0.0003"),
        (GPT2_SMALL, "eps", 0.02, "final_norm", "eps 0.02"),
        (LLAMA_SMALL, "scaling", 2.5, "blocks.0.attn.q_rotated", "linear scaling by 2.5"),
        (LLAMA_SMALL, "logits", 15.0, "logits", "logits as capped at 15"),
    ],
)
def test_the_number_of_a_row(config: Config, choice: str, value: float, point: str, key: str) -> None:
    evidence = evidence_with(config, choice, value)
    assert key_of(fit_number(evidence, evidence.right, point)) == key


@pytest.mark.parametrize("point", ["blocks.0.attn.q_rotated", "blocks.0.attn_norm", "logits", "embed"])
def test_values_that_no_number_explains(point: str) -> None:
    evidence = edited(point, lambda x: np.sin(3 * x))
    assert fit_number(evidence, evidence.right, point) is None


@pytest.mark.parametrize(("low", "high", "at"), [(-5.0, 5.0, 1.234567), (0.0, 30.0, 29.5)])
def test_the_minimum_of_a_residual(low: float, high: float, at: float) -> None:
    found = minimise(lambda x: np.array([np.exp(0.1 * x) - np.exp(0.1 * at), x - at]), low, high)
    assert found == pytest.approx(at, abs=1e-6)


def test_a_residual_that_does_not_depend_on_the_number_has_no_minimum() -> None:
    assert minimise(lambda x: np.ones(2), 0.0, 1.0) is None
    assert minimise(lambda x: np.full(2, np.nan), 0.0, 1.0) is None


def test_a_factor() -> None:
    evidence = edited("blocks.0.attn.scores", lambda x: x * np.float32(1.7))
    point = "blocks.0.attn.scores"
    assert key_of(fit_factor(evidence, evidence.right, point)) == "attn.scores times 1.7"
    right = evidence_of(LLAMA_SMALL)
    assert fit_factor(right, right.right, point) is None


@pytest.mark.parametrize("edit", [lambda x: x + 1, lambda x: 0 * x], ids=["a sum", "zeros"])
def test_what_is_no_factor(edit: Callable[[np.ndarray], np.ndarray]) -> None:
    evidence = edited("blocks.0.attn.scores", edit)
    assert fit_factor(evidence, evidence.right, "blocks.0.attn.scores") is None


def test_a_scaled_branch() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    x, out = evidence.points["embed"], evidence.points["blocks.0.attn.out"]
    points = {**evidence.points, "blocks.0.attn_residual": x + np.float32(0.5) * out}
    evidence = Evidence(evidence.weights, evidence.batch, points, "float32")
    fit = fit_branch(evidence, evidence.right, "blocks.0.attn_residual")
    assert key_of(fit) == "residual around attention scaled"
    assert fit is not None
    assert "1 x + 0.5 f(x)" in fit[0].says
    assert fit_branch(evidence, evidence.right, "blocks.0.residual") is None


def test_dropout() -> None:
    rng = np.random.default_rng(0)
    evidence = evidence_of(LLAMA_SMALL)
    x = evidence.points["blocks.0.mlp.out"]
    dropped = np.where(rng.random(x.shape) < 0.2, 0.0, x / 0.8).astype(np.float32)
    for values, key in ((dropped, "dropout"), (x * (x > 0), ""), (x / np.float32(0.8), "")):
        points = {**evidence.points, "blocks.0.mlp.out": values}
        side = Evidence(evidence.weights, evidence.batch, points, "float32")
        fit = fit_dropout(side, side.right, "blocks.0.mlp.out")
        assert ("" if fit is None else key_of(fit)) == key
