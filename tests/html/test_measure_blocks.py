"""The residual stream, its norms, the lens and the MLP units, against the trace and against NumPy by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp.html import measure_blocks
from tinyxp.html.forward_pass import ForwardPass

from .forward_passes import IDS, LONG_IDS, make_backend_run, make_run
from .test_forward_pass import softmax


def test_the_lengths_of_the_stream(run: ForwardPass) -> None:
    names = [name for name, _ in measure_blocks.stream_points(run)]
    assert names[:3] == ["embed", "blocks.0.attn_residual", "blocks.0.residual"]
    assert len(names) == 2 * run.params.config.n_layers + 1
    lengths = measure_blocks.stream_lengths(run)
    for name, row in zip(names, lengths, strict=True):
        np.testing.assert_allclose(row, [math.hypot(*x) for x in run.points[name][0].tolist()], rtol=1e-6)


def test_the_norm_that_reads_a_point_of_the_stream(run: ForwardPass) -> None:
    """It gives what the trace has under its name."""
    for point, norm in measure_blocks.stream_points(run):
        assert np.array_equal(measure_blocks.apply_norm(run, norm, run.points[point]), run.points[norm])


def test_the_shortest_vector_through_its_norm(run: ForwardPass) -> None:
    vector, config = measure_blocks.shortest_vector(run), run.params.config
    assert math.hypot(*vector.before) == pytest.approx(measure_blocks.stream_lengths(run).min())
    assert np.array_equal(vector.before, run.point(vector.point)[vector.position])
    assert np.array_equal(vector.after, run.point(vector.norm)[vector.position])
    assert [step.factor for step in vector.scaled] == [1.0, 0.1, 0.01, 0.001, 0.0]
    spread = vector.before - vector.before.mean() if config.norm == "layer" else vector.before
    weight, bias = (
        np.asarray(run.params.get(f"{vector.norm}.{part}", 0.0), dtype=float) for part in ("weight", "bias")
    )
    for step in vector.scaled:
        power = step.factor**2 * float(np.mean(spread**2))
        assert step.power == pytest.approx(power, rel=1e-5)
        for eps, value in ((config.norm_eps, step.after), (0.0, step.without_eps)):
            if power == eps == 0.0:
                assert math.isnan(value)
                continue
            y = step.factor * spread / math.sqrt(power + eps) * weight + bias
            assert value == pytest.approx(math.sqrt(np.mean(y * y)), rel=1e-4)
    assert vector.scaled[0].after == pytest.approx(math.sqrt(np.mean(vector.after**2)))


def test_the_lens_ends_with_the_model_s_answer(run: ForwardPass) -> None:
    best, mass = measure_blocks.logit_lens(run)
    assert best.shape == mass.shape == (run.params.config.n_layers + 1, 7)
    p = softmax(run.points["logits"][0].astype(float))
    assert best[-1].tolist() == p.argmax(-1).tolist()
    np.testing.assert_allclose(mass[-1], p.max(-1), atol=1e-6)


def test_the_lens_adds_the_bias_of_the_head() -> None:
    run = make_run("relu2")
    p = softmax(run.points["logits"][0].astype(float))
    np.testing.assert_allclose(measure_blocks.logit_lens(run)[1][-1], p.max(-1), atol=1e-6)


def test_the_lens_at_an_early_block_is_a_model_that_stops_there(run: ForwardPass) -> None:
    """The same weights without the later blocks."""
    config = replace(run.params.config, n_layers=1)
    short = tinyxp.Params({name: run.params[name] for name in drawn(config)}, config)
    p = softmax(tinyxp.forward(short, [list(IDS)])[0].astype(float))
    best, mass = measure_blocks.logit_lens(run)
    assert best[1].tolist() == p.argmax(-1).tolist()
    np.testing.assert_allclose(mass[1], p.max(-1), atol=1e-6)


def test_units_are_those_with_the_largest_results(run: ForwardPass) -> None:
    units, values = measure_blocks.mlp_units(run, 1)
    at = {name: run.point(f"blocks.1.mlp.{name}") for name in ("up", "hidden")}
    assert units == np.argsort(-np.abs(at["hidden"]).max(axis=0))[:8].tolist()
    assert np.array_equal(values[:, -1], at["hidden"][:, units].T)
    assert np.array_equal(values[:, -2], at["up"][:, units].T)
    if run.params.config.mlp == "swiglu":
        gate = run.point("blocks.1.mlp.gate")[:, units].T
        assert np.array_equal(values[:, 0], gate)
        np.testing.assert_allclose(values[:, 1], gate / (1.0 + np.exp(-gate)), atol=1e-6)
        np.testing.assert_allclose(values[:, 1] * values[:, 2], values[:, 3], atol=1e-6)


def test_the_curve_of_the_activation(run: ForwardPass) -> None:
    x, y = measure_blocks.activation_curve(run, 3.0).T
    assert (x[0], x[-1]) == (-3.0, 3.0)
    units, values = measure_blocks.mlp_units(run, 0)
    inside = np.abs(values[:, 0]) < 3.0
    assert len(units) == 8
    np.testing.assert_allclose(np.interp(values[:, 0], x, y)[inside], values[:, 1][inside], atol=1e-4)


def test_a_long_sequence_keeps_its_last_positions() -> None:
    run = make_run("llama", LONG_IDS, str)
    lengths, (best, p) = measure_blocks.stream_lengths(run), measure_blocks.logit_lens(run)
    assert lengths.shape == (5, 64)
    assert best.shape == p.shape == (3, 64)
    assert measure_blocks.mlp_units(run, 0)[1].shape == (8, 4, 64)
    last = run.points["blocks.1.residual"][0, -1]
    assert lengths[-1, -1] == pytest.approx(math.hypot(*last.tolist()))
    assert best[-1, -1] == run.points["logits"][0, -1].argmax()


def test_every_backend_gives_the_same_numbers(backend: tinyxp.Backend) -> None:
    run, expected = make_backend_run(backend), make_run("llama")
    for measure in (measure_blocks.logit_lens, lambda run: measure_blocks.mlp_units(run, 1)):
        np.testing.assert_allclose(measure(run)[1], measure(expected)[1], atol=1e-5)
    after = [[step.after for step in measure_blocks.shortest_vector(x).scaled] for x in (run, expected)]
    np.testing.assert_allclose(*after, rtol=1e-4)
