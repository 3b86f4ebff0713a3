"""Greedy and drawn tokens: known distributions, ties, boundaries, and the settings that are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyxp
from tests.reference import array, host
from tinyxp.sampling import Sampler, draw, greedy, probabilities

LOGITS = [1.5, 0.5, 0.0, -1.0]


def kept(backend: tinyxp.Backend, masses: list[float], top_p: float, dtype: str = "float32") -> set[int]:
    """Which tokens of these probabilities top-p keeps; what it keeps must add to 1 in the old proportions."""
    p = host(probabilities(array(backend, [np.log(masses)], dtype), top_p=top_p, xp=backend.xp))[0]
    stays = np.flatnonzero(p)
    expected = np.asarray(masses)[stays] / np.asarray(masses)[stays].sum()
    np.testing.assert_allclose(p[stays], expected, rtol=2e-6)
    return set(stays.tolist())


def test_greedy_is_the_argmax_of_each_row(backend: tinyxp.Backend) -> None:
    logits = np.zeros((3, 5), dtype=np.float32)
    logits[2, 4], logits[0, 1] = 3.0, 1.0
    assert host(greedy(array(backend, logits), xp=backend.xp)).tolist() == [1, 0, 4]


def test_greedy_takes_the_lowest_of_equals(backend: tinyxp.Backend) -> None:
    logits = np.zeros((2, 50), dtype=np.float32)
    logits[1, [7, 30, 49]] = 1.0
    assert host(greedy(array(backend, logits), xp=backend.xp)).tolist() == [0, 7]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"temperature": 0.5}, [0.8390, 0.1135, 0.0418, 0.0057]),
        ({"temperature": 1.0}, [0.5977, 0.2199, 0.1334, 0.0491]),
        ({"temperature": 2.0}, [0.4228, 0.2564, 0.1997, 0.1211]),
        ({"temperature": 1.0, "top_k": 2}, [0.7311, 0.2689, 0.0, 0.0]),
        ({"top_k": 1}, [1.0, 0.0, 0.0, 0.0]),
        ({"top_k": 4}, [0.5977, 0.2199, 0.1334, 0.0491]),
        ({"top_k": 1000}, [0.5977, 0.2199, 0.1334, 0.0491]),
    ],
    ids=repr,
)
def test_known_distributions(backend: tinyxp.Backend, settings: Any, expected: list[float]) -> None:
    p = host(probabilities(array(backend, [LOGITS], "float32"), xp=backend.xp, **settings))[0]
    assert np.max(np.abs(p - expected)) <= 5.1e-5
    assert p.sum() == pytest.approx(1.0, abs=3e-7)
    assert np.array_equal(p == 0.0, np.asarray(expected) == 0.0)


@pytest.mark.parametrize(
    "masses, top_p, expected",
    [
        ([0.5, 0.3, 0.15, 0.05], 0.6, {0, 1}),
        ([0.3, 0.1, 0.1, 0.5], 0.8, {0, 3}),
        ([0.5, 0.41, 0.09], 0.9, {0, 1}),
        ([0.9, 0.1], 0.5, {0}),
        ([0.5, 0.3, 0.15, 0.05], 0.0, {0}),
        ([0.1, 0.2, 0.7], 0.0, {2}),
        ([0.5, 0.3, 0.15, 0.05], 1.0, {0, 1, 2, 3}),
        ([0.25, 0.25, 0.25, 0.25], 0.5, {0, 1}),
        ([0.25, 0.25, 0.25, 0.25], 0.51, {0, 1, 2}),
        ([0.05, 0.15, 0.3, 0.5], 0.96, {0, 1, 2, 3}),
    ],
    ids=repr,
)
def test_top_p(backend: tinyxp.Backend, masses: list[float], top_p: float, expected: set[int]) -> None:
    assert kept(backend, masses, top_p) == expected


def test_top_p_1_keeps_all_of_a_large_vocabulary(backend: tinyxp.Backend) -> None:
    """A float32 running sum of 50,000 probabilities ends at 0.99998."""
    p = host(probabilities(array(backend, np.zeros((1, 50000)), "float32"), top_p=1.0, xp=backend.xp))
    assert (p > 0.0).all()


def test_temperature_then_top_k_then_top_p(backend: tinyxp.Backend) -> None:
    logits = array(backend, [LOGITS], "float32")

    def stays(**settings: Any) -> list[int]:
        return np.flatnonzero(host(probabilities(logits, xp=backend.xp, **settings))[0]).tolist()

    # At temperature 1 the first has 0.598; at 0.5, 0.839: the mass is that after temperature.
    assert stays(top_p=0.7) == [0, 1]
    assert stays(top_p=0.7, temperature=0.5) == [0]
    # Among the top two the first has 0.731: the mass is that after top-k.
    assert stays(top_p=0.7, top_k=2) == [0]
    assert stays(top_p=0.75, top_k=2) == [0, 1]


def test_the_processors_of_transformers_agree() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    rng = np.random.default_rng(0)
    for settings in ((0.7, 20, 0.8), (1.3, 40, 0.5), (1.0, 5, 0.95), (2.0, 50, 0.3)):
        temperature, top_k, top_p = settings
        logits = rng.normal(0.0, 2.0, (4, 50)).astype(np.float32)
        scores = torch.tensor(logits)
        for processor in (
            transformers.TemperatureLogitsWarper(temperature),
            transformers.TopKLogitsWarper(top_k),
            transformers.TopPLogitsWarper(top_p),
        ):
            scores = processor(None, scores)
        theirs = torch.softmax(scores, -1).numpy()
        ours = probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p, xp=np)
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
        assert np.array_equal(ours > 0.0, theirs > 0.0)


def test_of_equals_the_lower_ids_stay(backend: tinyxp.Backend) -> None:
    """torch's own argsort of 30 equal numbers starts 15, 29, 28."""
    logits = array(backend, np.zeros((1, 30)), "float32")
    for settings in ({"top_k": 3}, {"top_p": 0.09}):
        p = host(probabilities(logits, xp=backend.xp, **settings))[0]
        assert np.flatnonzero(p).tolist() == [0, 1, 2]


def test_extreme_logits(backend: tinyxp.Backend) -> None:
    big = array(backend, [[1e36, -1e36, 1e36, 0.0]], "float32")
    for settings in ({}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0.01}):
        p = host(probabilities(big, xp=backend.xp, **settings))[0]
        assert p.tolist() == [0.5, 0.0, 0.5, 0.0]


def test_half_precision_logits_are_sampled_in_float32(backend: tinyxp.Backend) -> None:
    if "float16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no float16")
    p = probabilities(array(backend, [LOGITS], "float16"), xp=backend.xp)
    assert str(p.dtype).endswith("float32")
    assert np.max(np.abs(host(p)[0] - [0.5977, 0.2199, 0.1334, 0.0491])) <= 5.1e-5


@given(data=st.data())
def test_probabilities_are_a_distribution_over_the_likeliest(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    logits = np.array(data.draw(st.lists(st.integers(-40, 40), min_size=n, max_size=n))) / 4.0
    top_k = data.draw(st.none() | st.integers(1, 15))
    top_p = data.draw(st.none() | st.floats(0.0, 1.0))
    temperature = data.draw(st.floats(0.1, 10.0))
    p = probabilities(logits[None], temperature=temperature, top_k=top_k, top_p=top_p, xp=np)[0]
    assert p.sum() == pytest.approx(1.0)
    stays = p > 0.0
    assert 1 <= stays.sum() <= (top_k or n)
    # Nothing that is left out is likelier than what stays; of equals the lower ids stay.
    order = sorted(range(n), key=lambda i: (-logits[i], i))
    assert set(np.flatnonzero(stays)) == set(order[: stays.sum()])


# Drawing


def test_draw_inverts_the_cumulative_distribution_in_id_order(backend: tinyxp.Backend) -> None:
    p = array(backend, [[0.25, 0.0, 0.5, 0.25]] * 6, "float32")
    u = array(backend, [0.0, 0.2499, 0.25, 0.7499, 0.75, 0.99999], "float32")
    assert host(draw(p, u, xp=backend.xp)).tolist() == [0, 0, 2, 2, 3, 3]


def test_draw_never_takes_what_has_no_probability(backend: tinyxp.Backend) -> None:
    p = array(backend, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], "float32")
    for u in (0.0, 0.5, 1.0 - 2.0**-24):
        assert host(draw(p, array(backend, [u] * 3, "float32"), xp=backend.xp)).tolist() == [1, 2, 0]


def test_draw_where_the_sum_falls_short_of_one(backend: tinyxp.Backend) -> None:
    p = array(backend, np.full((1, 50000), 2e-5), "float32")
    last = array(backend, [1.0 - 2.0**-24], "float32")
    assert 49990 <= host(draw(p, last, xp=backend.xp))[0] <= 49999


def test_draw_frequencies() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    u = np.random.default_rng(0).random(20000)
    counts = np.bincount(draw(np.tile(p, (20000, 1)), u, xp=np), minlength=4) / 20000
    assert np.max(np.abs(counts - p)) <= 5.0 * math.sqrt(0.25 / 20000)  # five standard errors


# The sampler


def test_uniforms_belong_to_seed_and_row() -> None:
    streams = Sampler(temperature=1.0, seed=7).streams(3)
    u = np.array([[stream.random() for stream in streams] for _ in range(5)])
    for r in range(3):
        assert np.array_equal(u[:, r], np.random.default_rng([7, r]).random(5))
    assert np.array_equal(Sampler(seed=7).streams(1)[0].random(3), u[:3, 0])
    assert Sampler().streams(1)[0].random() != Sampler().streams(1)[0].random()


def test_temperature_0_is_argmax() -> None:
    logits = np.array([[0.0, 2.0, 2.0], [5.0, 1.0, 1.0]])
    chosen = Sampler(temperature=0.0, top_k=1, top_p=0.5).choose(logits, np.array([0.99, 0.99]))
    assert chosen.tolist() == [1, 0]


@pytest.mark.parametrize(
    "field, values",
    [
        ("temperature", [-0.1, -1, math.nan, math.inf, "1", None, True]),
        ("top_k", [0, -1, 1.0, "3", True]),
        ("top_p", [-0.1, 1.1, math.nan, "0.5", True]),
        ("seed", [-1, 1.5, "7", True]),
    ],
)
def test_settings_that_are_refused(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{field} is ") as error:
            Sampler(**{field: value})
        assert repr(value) in str(error.value)
