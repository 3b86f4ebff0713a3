"""Errors beside the rounding error of a correct implementation, point by point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinyxp.doctor import Batch, Trace
from tinyxp.doctor.distance import Distance, measure
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.rounding import (
    WINDOW,
    Error,
    _raise_to_usual,
    describe_noise,
    measure_errors,
    measure_own_errors,
)

from .models import IDS, llama, traced

BATCH = Batch(IDS)
WEIGHTS = WeightSource.of_params(llama())
ALL = np.ones((1, 1, 1), bool)


def run(dtype: str) -> Trace:
    return Trace(traced(llama().to(dtype=dtype), IDS), dtype)


def test_an_error_is_a_fault_above_the_limit_alone() -> None:
    distance = Distance(0.0, 0.0, (0,), 1.0, 1.0)
    assert not Error(distance, distance, 1.0).is_fault
    assert Error(distance, distance, math.nextafter(1.0, 2.0)).is_fault


def test_the_errors_of_a_correct_run_are_its_noise() -> None:
    trace = run("float32")
    reference = run("float64").points
    shapes, (errors,) = measure_errors(WEIGHTS, BATCH, [trace])
    assert list(errors) == list(shapes) == list(reference)
    for name, error in errors.items():
        assert shapes[name] == reference[name].shape
        if not name.endswith("scores"):
            assert error.distance == measure(trace.points[name], reference[name], ALL)
        assert error.noise.rms >= error.distance.rms
        assert error.noise.worst >= error.distance.worst
        assert error.excess <= 0.1


def test_each_trace_has_the_noise_of_its_own_dtype() -> None:
    traces = [run("float16"), run("float32"), run("float64")]
    _, errors = measure_errors(WEIGHTS, BATCH, traces)
    half, single, double = (of["final_norm"].noise.rms for of in errors)
    assert half > 1000 * single
    assert double == pytest.approx(single * 2.0**-29, rel=1e-12)  # scaled by the epsilons
    assert not any(error.is_fault for of in errors for error in of.values())
    assert errors[2]["logits"].distance.worst == 0.0


def test_points_of_another_shape_are_left_out() -> None:
    trace = run("float32")
    trace.points["blocks.0.mlp.up"] = trace.points["blocks.0.mlp.up"][..., :-1]
    del trace.points["blocks.0.attn.q"]
    shapes, (errors,) = measure_errors(WEIGHTS, BATCH, [trace])
    assert shapes.keys() - errors.keys() == {"blocks.0.mlp.up", "blocks.0.attn.q"}
    own = measure_own_errors(WEIGHTS, BATCH, trace)
    assert own.keys() == errors.keys()


def test_an_operation_is_measured_on_the_traces_own_inputs() -> None:
    trace = run("float32")
    trace.points["blocks.0.residual"] = 2 * trace.points["blocks.0.residual"]
    own = measure_own_errors(WEIGHTS, BATCH, trace)
    # The residual is wrong, and so are the points that the trace computed from its true value.
    assert [name for name, error in own.items() if error.is_fault] == [
        "blocks.0.residual",
        "blocks.1.attn_norm",  # by eps
        "blocks.1.attn_residual",
    ]
    (errors,) = measure_errors(WEIGHTS, BATCH, [trace]).errors
    assert [name for name, error in errors.items() if error.is_fault] == ["blocks.0.residual"]


def test_a_point_whose_inputs_are_unknown_inherits_their_errors() -> None:
    trace = run("float32")
    logits = 2 * trace.points["logits"]
    own = measure_own_errors(WEIGHTS, BATCH, Trace({"logits": logits}, "float32"))
    assert list(own) == ["logits"]
    assert own["logits"].is_fault


def test_small_noise_is_raised_to_the_median_of_the_last_points() -> None:
    at = (0,)
    noises = {f"{i}": Distance(1e-3 * (i + 1), 2e-3 * (i + 1), at, 10.0, 40.0) for i in range(WINDOW)}
    noises["small"] = Distance(1e-9, 1e-9, at, 10.0, 40.0)
    raised = _raise_to_usual(noises)
    assert raised["0"] == Distance(1e-3, 4e-3, at, 10.0, 40.0)  # the worst is raised too
    usual = float(np.median([*(1e-4 * (i + 1) for i in range(1, WINDOW)), 1e-10]))  # the first is forgotten
    assert raised["small"].rms == pytest.approx(10.0 * usual)
    assert raised["small"].worst == pytest.approx(40.0 * usual)
    large = Distance(1.0, 2.0, at, 10.0, 40.0)
    assert _raise_to_usual(noises | {"large": large})["large"] == large


def test_noise_of_zeros_is_kept_after_an_overflow() -> None:
    infinite = Distance(math.inf, math.inf, (0,), 1.0, 1.0)
    zeros = Distance(0.0, 0.0, (0,), 0.0, 0.0)
    assert _raise_to_usual({"a": infinite, "b": zeros})["b"] == zeros
    assert _raise_to_usual({"b": zeros})["b"] == zeros


def test_how_noise_is_measured() -> None:
    assert describe_noise("float16") == "what float16 costs a correct implementation here (numpy)"
    assert describe_noise("float64") == (
        "what float64 costs a correct implementation here (numpy, float32's scaled)"
    )
