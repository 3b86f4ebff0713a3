"""The numbers of a page, against the trace and against NumPy by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn
from tinyxp.html import measure
from tinyxp.html.measure import Run

from .conftest import CONFIGS, IDS, make_run


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_next_tokens_are_those_of_the_logits(run: Run) -> None:
    p = softmax(run.points["logits"][0, -1].astype(float))
    found = measure.next_tokens(run)
    assert [i for i, _ in found] == np.argsort(-p)[:5].tolist()
    assert [x for _, x in found] == pytest.approx(np.sort(p)[::-1][:5].tolist(), abs=1e-7)


def test_attention_with_and_without_the_mask(run: Run) -> None:
    for layer in range(run.params.config.n_layers):
        weights, unmasked, future = measure.attention(run, layer)
        scores = run.points[f"blocks.{layer}.attn.scores"][0].astype(float)
        assert np.array_equal(weights, run.points[f"blocks.{layer}.attn.weights"][0])
        np.testing.assert_allclose(unmasked, softmax(scores), atol=1e-7)
        later = np.triu(np.ones((7, 7), dtype=bool), 1)
        np.testing.assert_allclose(future, [x[later].sum() / 7 for x in softmax(scores)], atol=1e-6)
        assert not np.allclose(unmasked[:, later], 0.0)


def test_clocks_turn_the_model_s_own_queries() -> None:
    """What a hand shows is what happened to the pair between q and q_rotated."""
    run = make_run("llama")
    pairs, frequencies, hands = measure.clocks(run)
    assert pairs == [0, 1, 2, 3]
    np.testing.assert_allclose(frequencies, [1.0, 0.1, 0.01, 0.001])
    assert hands.shape == (4, 64, 2)
    q = run.point("blocks.0.attn.q").reshape(7, 4, 8).swapaxes(0, 1)
    rotated = run.point("blocks.0.attn.q_rotated")
    for k, pair in enumerate(pairs):
        cos, sin = hands[k, :7].T
        np.testing.assert_allclose(rotated[..., pair], q[..., pair] * cos - q[..., pair + 4] * sin, atol=1e-6)


def test_positions_of_a_table() -> None:
    run = make_run("gpt2")
    rows = np.asarray(run.params["pos_embed.weight"], dtype=float)[:7]
    found = measure.position_similarity(run)
    assert found[2, 5] == pytest.approx(
        rows[2] @ rows[5] / math.sqrt(rows[2] @ rows[2] * (rows[5] @ rows[5]))
    )
    np.testing.assert_allclose(np.diag(found), 1.0)


def test_the_norms_of_the_stream(run: Run) -> None:
    names = [name for name, _ in measure.stream(run)]
    assert names[:3] == ["embed", "blocks.0.attn_residual", "blocks.0.residual"]
    assert len(names) == 2 * run.params.config.n_layers + 1
    found = measure.stream_norms(run)
    for name, row in zip(names, found, strict=True):
        np.testing.assert_allclose(row, [math.hypot(*x) for x in run.points[name][0].tolist()], rtol=1e-6)


def test_the_norm_that_reads_a_point_of_the_stream(run: Run) -> None:
    """It gives what the trace has under its name."""
    for point, norm in measure.stream(run):
        assert np.array_equal(measure._normed(run, norm, run.points[point], None), run.points[norm])


def test_the_silent_token(run: Run) -> None:
    found, config = measure.silent(run), run.params.config
    assert math.hypot(*found.before) == pytest.approx(measure.stream_norms(run).min())
    assert np.array_equal(found.before, run.point(found.point)[found.position])
    assert np.array_equal(found.after, run.point(found.norm)[found.position])
    assert [step.factor for step in found.steps] == [1.0, 0.1, 0.01, 0.001, 0.0]
    spread = found.before - found.before.mean() if config.norm == "layer" else found.before
    weight, bias = (
        np.asarray(run.params.get(f"{found.norm}.{part}", 0.0), dtype=float) for part in ("weight", "bias")
    )
    for step in found.steps:
        power = step.factor**2 * float(np.mean(spread**2))
        assert step.power == pytest.approx(power, rel=1e-5)
        for eps, value in ((config.norm_eps, step.after), (0.0, step.bare)):
            if power == eps == 0.0:
                assert math.isnan(value)
                continue
            y = step.factor * spread / math.sqrt(power + eps) * weight + bias
            assert value == pytest.approx(math.sqrt(np.mean(y * y)), rel=1e-4)
    assert found.steps[0].after == pytest.approx(math.sqrt(np.mean(found.after**2)))


def test_the_lens_ends_with_the_model_s_answer(run: Run) -> None:
    best, mass = measure.lens(run)
    assert best.shape == mass.shape == (run.params.config.n_layers + 1, 7)
    p = softmax(run.points["logits"][0].astype(float))
    assert best[-1].tolist() == p.argmax(-1).tolist()
    np.testing.assert_allclose(mass[-1], p.max(-1), atol=1e-6)


def test_the_lens_at_an_early_block_is_a_model_that_stops_there(run: Run) -> None:
    """The same weights without the later blocks."""
    config = replace(run.params.config, n_layers=1)
    short = tinyxp.Params({name: run.params[name] for name in drawn(config)}, config)
    p = softmax(tinyxp.forward(short, [list(IDS)])[0].astype(float))
    best, mass = measure.lens(run)
    assert best[1].tolist() == p.argmax(-1).tolist()
    np.testing.assert_allclose(mass[1], p.max(-1), atol=1e-6)


def test_valves_are_the_units_with_the_largest_products(run: Run) -> None:
    units, values = measure.valve(run, 1)
    at = {name: run.point(f"blocks.1.mlp.{name}") for name in ("up", "hidden")}
    assert units == np.argsort(-np.abs(at["hidden"]).max(axis=0))[:8].tolist()
    assert np.array_equal(values[:, -1], at["hidden"][:, units].T)
    assert np.array_equal(values[:, -2], at["up"][:, units].T)
    if run.params.config.mlp == "swiglu":
        gate = run.point("blocks.1.mlp.gate")[:, units].T
        assert np.array_equal(values[:, 0], gate)
        np.testing.assert_allclose(values[:, 1], gate / (1.0 + np.exp(-gate)), atol=1e-6)
        np.testing.assert_allclose(values[:, 1] * values[:, 2], values[:, 3], atol=1e-6)


def test_the_curve_of_the_activation(run: Run) -> None:
    x, y = measure.activation(run, 3.0).T
    assert (x[0], x[-1]) == (-3.0, 3.0)
    units, values = measure.valve(run, 0)
    inside = np.abs(values[:, 0]) < 3.0
    assert len(units) == 8
    np.testing.assert_allclose(np.interp(values[:, 0], x, y)[inside], values[:, 1][inside], atol=1e-4)


def test_long_sequences_are_shown_from_the_end() -> None:
    ids = tuple(i % 128 for i in range(3, 93))
    run = make_run("llama", ids)
    assert run.shown == range(26, 90)
    weights, unmasked, _ = measure.attention(run, 0)
    assert np.array_equal(weights, run.points["blocks.0.attn.weights"][0][:, 26:, 26:])
    assert unmasked.shape == (4, 64, 64)
    assert (unmasked.sum(axis=-1) < 1.0).all()
    assert measure.stream_norms(run).shape == measure.lens(run)[0].repeat(2, axis=0)[1:].shape == (5, 64)
    assert measure.clocks(run)[2].shape == (4, 90, 2)


def test_the_first_point_that_is_not_finite() -> None:
    assert measure.not_finite(make_run("llama")) is None
    arrays = {name: np.array(x) for name, x in drawn(CONFIGS["llama"]).items()}
    arrays["blocks.1.mlp.up.weight"][3, 2] = np.inf
    params = tinyxp.Params(arrays, CONFIGS["llama"])
    with np.errstate(all="ignore"):
        points = tinyxp.trace(params, [list(IDS)])
    assert measure.not_finite(Run(params, IDS, points, str)) == "blocks.1.mlp.up"


def test_on_every_backend_the_same(backend: tinyxp.Backend) -> None:
    params = drawn(CONFIGS["llama"]).to(backend.xp)
    found, expected = Run(params, IDS, tinyxp.trace(params, [list(IDS)]), str), make_run("llama")
    assert [i for i, _ in measure.next_tokens(found)] == [i for i, _ in measure.next_tokens(expected)]
    np.testing.assert_allclose(measure.attention(found, 1)[1], measure.attention(expected, 1)[1], atol=1e-5)
    np.testing.assert_allclose(measure.lens(found)[1], measure.lens(expected)[1], atol=1e-5)
    np.testing.assert_allclose(measure.valve(found, 1)[1], measure.valve(expected, 1)[1], atol=1e-5)
    np.testing.assert_allclose(measure.clocks(found)[2], measure.clocks(expected)[2], atol=1e-5)
    after = [step.after for step in measure.silent(found).steps]
    np.testing.assert_allclose(after, [step.after for step in measure.silent(expected).steps], rtol=1e-4)
