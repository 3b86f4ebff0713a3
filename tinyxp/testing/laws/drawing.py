"""Laws of sampling: how ids are drawn from a distribution, and how a seed decides each of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.sampling import OWN, POOL_SHAPE, apply, scores
from tinyxp.testing.laws.truncation import POWERS, draw_weights, logs, top_ps, truncated
from tinyxp.testing.strategies import seeds

law = laws_of("sampling", "sampling", OWN, "ops")


def draw_masses(subject: Any, draw: Draw) -> list[list[int]]:
    """Draw rows of integer masses that add up to 64, some of them 0."""
    rows, n = POOL_SHAPE if subject.pooled else (2, draw("n", st.integers(1, 9)))
    cut = st.sampled_from([0, 64]) | st.integers(0, 64)
    cuts = st.lists(cut, min_size=n - 1, max_size=n - 1).map(sorted) | cut.map(lambda x: [x] * (n - 1))
    drawn = draw("cuts", st.lists(cuts, min_size=rows, max_size=rows))
    return [[b - a for a, b in zip([0, *row], [*row, 64], strict=True)] for row in drawn]


@law(
    "A draw is the first id whose cumulative mass exceeds u; only the proportions of the masses matter.",
    source="the inverse of the cumulative distribution, Devroye, 1986, section III.2",
)
def draw_inverts_the_distribution(subject: Any, draw: Draw) -> None:
    masses = draw_masses(subject, draw)
    scale = draw("scale", st.sampled_from([1.0, 0.5, 0.125, 4.0]))  # exact in every binary dtype
    uniforms, expected = [], []
    for r, row in enumerate(masses):
        edges = [sum(row[:i]) for i in range(len(row))]
        finer = st.sampled_from(edges).map(lambda edge: edge * 2**14 + 1) | st.integers(0, 2**20 - 1)
        u = draw(
            f"u{r}", st.sampled_from([e * 2**14 for e in edges if e < 64]) | finer.map(lambda x: x % 2**20)
        )
        uniforms.append(u / 2**20)
        expected.append(next(i for i in range(len(row)) if sum(row[: i + 1]) * 2**14 > u))
    p = scale * np.asarray(masses) / 64.0
    dtype = draw("dtype", st.sampled_from(sorted({subject.dtype, "float32"})))
    found = apply(subject, subject.modules.sampling.draw, p, np.asarray(uniforms), dtype=dtype)
    subject.equal(found, expected, f"ids drawn at {uniforms}")


@law(
    "u = 0 draws the first id with a probability and u just below 1 the last: an id of probability 0 is "
    "never drawn.",
    source="float32 rounds a uniform of float64 up to 1",
)
def draw_never_takes_what_has_no_probability(subject: Any, draw: Draw) -> None:
    masses = draw_masses(subject, draw)
    p = np.asarray(masses) / 64.0
    dtype = draw("dtype", st.sampled_from(sorted({subject.dtype, "float32"})))
    for u, end in ((0.0, 0), (1.0 - 2.0**-24, -1), (1.0 - 2.0**-53, -1)):
        found = apply(subject, subject.modules.sampling.draw, p, np.full(len(p), u), dtype=dtype)
        subject.equal(found, [np.flatnonzero(row)[end] for row in masses], f"ids drawn at {u!r}")
    # Masses whose sum differs from 1 by rounding.
    rng = np.random.default_rng(draw("seed", seeds()))
    uneven = np.where(p > 0.0, rng.uniform(0.01, 1.0, p.shape), 0.0)
    uneven /= uneven.sum(axis=-1, keepdims=True)
    for u in (0.0, rng.random(), 1.0 - 2.0**-53):
        found = apply(subject, subject.modules.sampling.draw, uneven, np.full(len(p), u), dtype=dtype)
        taken = np.take_along_axis(uneven, found.astype(np.int64)[:, None], axis=-1)[:, 0]
        subject.equal(taken > 0.0, np.ones(len(p)), f"whether the ids {found.tolist()} may be drawn at {u!r}")


def build_sampler(subject: Any, **settings: Any) -> Any:
    """Return the subject's Sampler; omit settings that are None."""
    return subject.modules.sampling.Sampler(**{name: x for name, x in settings.items() if x is not None})


@law(
    "Row r takes its uniforms from numpy's default_rng([seed, r]), one for each step: its ids invert the "
    "exact cumulative distribution there, whatever the other rows."
)
def a_seed_decides_every_draw(subject: Any, draw: Draw) -> None:
    weights = draw_weights(subject, draw)
    temperature = draw("temperature", st.sampled_from([1.0, 0.5, 2.0]))
    top_k = draw("top_k", st.none() | st.integers(1, len(weights[0]) + 1))
    top_p = draw("top_p", top_ps(weights, temperature))
    seed = draw("seed", st.integers(0, 2**40))
    sampler = build_sampler(subject, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    streams = sampler.streams(len(weights))
    uniforms = [np.random.default_rng([seed, r]).random(6) for r in range(len(weights))]
    for step in range(6):
        expected = []
        for row, u in zip(weights, uniforms, strict=True):
            p = truncated([w ** POWERS[temperature] for w in row], top_k, top_p)
            edges = [float(sum(p[: i + 1])) for i in range(len(p))]
            assume(min(abs(edge - u[step]) for edge in edges) > 1e-12)
            expected.append(next(i for i, edge in enumerate(edges) if edge > u[step]))
        subject.equal(sampler.choose(logs(weights), streams), expected, f"ids of step {step}")


@law(
    "Ids are drawn with their probabilities, in rows of different streams; a false alarm has probability "
    "1e-9.",
    source="Chernoff's bound: P(N KL(frequency, p) >= x) <= 2 exp(-x), for each id",
    examples=5,
)
def frequencies_match_probabilities(subject: Any, draw: Draw) -> None:
    [row, *_] = draw_weights(subject, draw, low=2)
    temperature = draw("temperature", st.sampled_from([0.5, 1.0, 2.0]))
    sampler = build_sampler(subject, temperature=temperature, seed=draw("seed", seeds()))
    rows, steps = 200, 10
    streams, given = sampler.streams(rows), np.repeat(logs([row]), rows, axis=0)
    ids = np.concatenate([sampler.choose(given, streams) for _ in range(steps)])
    masses = [w ** POWERS[temperature] for w in row]
    limit = math.log(2 * len(row) * 1e9)
    for i, mass in enumerate(masses):
        p, found = mass / sum(masses), float(np.mean(ids == i))
        surprise = len(ids) * sum(
            q * math.log(q / expected) for q, expected in ((found, p), (1.0 - found, 1.0 - p)) if q > 0.0
        )
        if surprise > limit:
            raise AssertionError(f"id {i} of probability {p} makes up {found} of {len(ids)} draws")


@law("Without a seed no two generations draw the same uniforms.", examples=1)
def no_seed_is_a_new_one(subject: Any, draw: Draw) -> None:
    sampler = build_sampler(subject, temperature=1.0)
    uniforms = [stream.random() for _ in range(2) for stream in sampler.streams(2)]
    subject.equal(len(set(uniforms)), 4, "how many of 4 uniforms differ")


@law("Temperature 0, the default, is greedy with any limits; so is a temperature next to 0.")
def temperature_0_is_greedy(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw)
    expected = [row.index(max(row)) for row in given.tolist()]
    limits = {
        "top_k": draw("top_k", st.none() | st.integers(1, 9)),
        "top_p": draw("top_p", st.none() | st.floats(0.0, 1.0)),
        "seed": draw("seed", st.none() | seeds()),
    }
    for temperature in (None, 0, 0.0):
        sampler = build_sampler(subject, temperature=temperature, **limits)
        subject.equal(sampler.choose(given, sampler.streams(len(given))), expected, f"ids at {temperature!r}")
    sampler = build_sampler(subject, temperature=5e-324, top_k=1)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = sampler.choose(given, sampler.streams(len(given)))
    subject.equal(found, expected, "ids at 5e-324")


def check_rejects(message: str, f: Any, *args: Any, **named: Any) -> None:
    """Raise AssertionError unless f raises ValueError with ``message`` in its text."""
    try:
        f(*args, **named)
    except ValueError as error:
        if message not in str(error):
            raise AssertionError(f"the error says {str(error)!r}, not {message!r}") from None
    else:
        raise AssertionError(f"no error says {message!r}")


BAD: dict[str, list[Any]] = {
    "temperature": [-0.1, -1, -5e-324, math.nan, math.inf, "1", None, True],
    "top_k": [0, -1, 1.0, "3", True],
    "top_p": [-5e-324, -0.1, 1.0000000000000002, 1.1, math.nan, "0.5", True],
    "seed": [-1, 1.5, "7", True],
}
GOOD: dict[str, list[Any]] = {
    "temperature": [0, 0.0, 1, 1.5, np.float32(0.5)],
    "top_k": [None, 1, 2, 10**9, np.int64(3)],
    "top_p": [None, 0, 0.0, 1, 1.0, np.float64(0.5)],
    "seed": [None, 0, 2**70, np.uint8(3)],
}


@law(
    "A setting outside its limits raises ValueError naming it and its value; one at its limit is accepted.",
    examples=1,
)
def bad_settings_are_named(subject: Any, draw: Draw) -> None:
    for field, values in GOOD.items():
        for value in values:
            subject.modules.sampling.Sampler(**{field: value})
    for field, values in BAD.items():
        for value in values:
            check_rejects(f"{field} is {value!r};", subject.modules.sampling.Sampler, **{field: value})
