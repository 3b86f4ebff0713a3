"""Laws of sampling: how ids are drawn from a distribution, and that a seed decides every one of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.sampling import OWN, POOL_SHAPE, apply, scores
from tinyxp.testing.laws.truncation import POWERS, logs, top_ps, truncated, weighted
from tinyxp.testing.strategies import seeds


def masses_of(subject: Any, draw: Draw) -> list[list[int]]:
    """Drawn rows of whole masses, out of 64 in all, some of them 0."""
    rows, n = POOL_SHAPE if subject.pooled else (2, draw("n", st.integers(1, 9)))
    cut = st.sampled_from([0, 64]) | st.integers(0, 64)
    cuts = st.lists(cut, min_size=n - 1, max_size=n - 1).map(sorted) | cut.map(lambda x: [x] * (n - 1))
    drawn = draw("cuts", st.lists(cuts, min_size=rows, max_size=rows))
    return [[b - a for a, b in zip([0, *row], [*row, 64], strict=True)] for row in drawn]


@law(
    "A draw is the first id, in the order of ids, whose cumulative mass exceeds u; proportions alone count.",
    of="sampling",
    region="sampling",
    source="the inverse of the cumulative distribution, Devroye, 1986, section III.2",
    needs="ops",
)
def draw_inverts_the_distribution(subject: Any, draw: Draw) -> None:
    masses = masses_of(subject, draw)
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
    "At u = 0 the first id that has a probability is drawn and just below 1 the last: never one of 0.",
    of="sampling",
    region="sampling",
    source="float32 rounds a uniform of float64 up to 1",
    needs="ops",
)
def draw_never_takes_what_has_no_probability(subject: Any, draw: Draw) -> None:
    masses = masses_of(subject, draw)
    p = np.asarray(masses) / 64.0
    dtype = draw("dtype", st.sampled_from(sorted({subject.dtype, "float32"})))
    for u, end in ((0.0, 0), (1.0 - 2.0**-24, -1), (1.0 - 2.0**-53, -1)):
        found = apply(subject, subject.modules.sampling.draw, p, np.full(len(p), u), dtype=dtype)
        subject.equal(found, [np.flatnonzero(row)[end] for row in masses], f"ids drawn at {u!r}")
    # Sums that fall short of 1, or exceed it, by rounding.
    rng = np.random.default_rng(draw("seed", seeds()))
    uneven = np.where(p > 0.0, rng.uniform(0.01, 1.0, p.shape), 0.0)
    uneven /= uneven.sum(axis=-1, keepdims=True)
    for u in (0.0, rng.random(), 1.0 - 2.0**-53):
        found = apply(subject, subject.modules.sampling.draw, uneven, np.full(len(p), u), dtype=dtype)
        taken = np.take_along_axis(uneven, found.astype(np.int64)[:, None], axis=-1)[:, 0]
        subject.equal(taken > 0.0, np.ones(len(p)), f"whether the ids {found.tolist()} may be drawn at {u!r}")


def sampler(subject: Any, **settings: Any) -> Any:
    """The subject's Sampler; settings that are None are left out."""
    return subject.modules.sampling.Sampler(**{name: x for name, x in settings.items() if x is not None})


@law(
    "Row r of a seed takes its uniforms from numpy's default_rng([seed, r]), one a step: whatever the other "
    "rows, each id is the inverse of the exact cumulative distribution at the next of them.",
    of="sampling",
    region="sampling",
    source=OWN,
    needs="ops",
)
def a_seed_decides_every_draw(subject: Any, draw: Draw) -> None:
    weights = weighted(subject, draw)
    temperature = draw("temperature", st.sampled_from([1.0, 0.5, 2.0]))
    top_k = draw("top_k", st.none() | st.integers(1, len(weights[0]) + 1))
    top_p = draw("top_p", top_ps(weights, temperature))
    seed = draw("seed", st.integers(0, 2**40))
    chooser = sampler(subject, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    streams = chooser.streams(len(weights))
    uniforms = [np.random.default_rng([seed, r]).random(6) for r in range(len(weights))]
    for step in range(6):
        expected = []
        for row, u in zip(weights, uniforms, strict=True):
            p = truncated([w ** POWERS[temperature] for w in row], top_k, top_p)
            edges = [float(sum(p[: i + 1])) for i in range(len(p))]
            assume(min(abs(edge - u[step]) for edge in edges) > 1e-12)
            expected.append(next(i for i, edge in enumerate(edges) if edge > u[step]))
        subject.equal(chooser.choose(logs(weights), streams), expected, f"ids of step {step}")


@law(
    "Ids are drawn as often as their probabilities say, in rows of different streams: a false alarm in 1e9.",
    of="sampling",
    region="sampling",
    source="Chernoff's bound: P(N KL(frequency, p) >= x) <= 2 exp(-x), for each id",
    needs="ops",
    examples=5,
)
def frequencies_match_probabilities(subject: Any, draw: Draw) -> None:
    [row, *_] = weighted(subject, draw, low=2)
    temperature = draw("temperature", st.sampled_from([0.5, 1.0, 2.0]))
    chooser = sampler(subject, temperature=temperature, seed=draw("seed", seeds()))
    rows, steps = 200, 10
    streams, given = chooser.streams(rows), np.repeat(logs([row]), rows, axis=0)
    ids = np.concatenate([chooser.choose(given, streams) for _ in range(steps)])
    masses = [w ** POWERS[temperature] for w in row]
    limit = math.log(2 * len(row) * 1e9)
    for i, mass in enumerate(masses):
        p, found = mass / sum(masses), float(np.mean(ids == i))
        surprise = len(ids) * sum(
            q * math.log(q / expected) for q, expected in ((found, p), (1.0 - found, 1.0 - p)) if q > 0.0
        )
        if surprise > limit:
            raise AssertionError(f"id {i} of probability {p} makes up {found} of {len(ids)} draws")


@law(
    "Without a seed no two generations draw the same.",
    of="sampling",
    region="sampling",
    source=OWN,
    needs="ops",
    examples=1,
)
def no_seed_is_a_new_one(subject: Any, draw: Draw) -> None:
    chooser = sampler(subject, temperature=1.0)
    uniforms = [stream.random() for _ in range(2) for stream in chooser.streams(2)]
    subject.equal(len(set(uniforms)), 4, "how many of 4 uniforms differ")


@law(
    "Temperature 0, which is the default, is greedy at any limit; a temperature next to 0 is too.",
    of="sampling",
    region="sampling",
    source=OWN,
    needs="ops",
)
def temperature_0_is_greedy(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw)
    expected = [row.index(max(row)) for row in given.tolist()]
    limits = {
        "top_k": draw("top_k", st.none() | st.integers(1, 9)),
        "top_p": draw("top_p", st.none() | st.floats(0.0, 1.0)),
        "seed": draw("seed", st.none() | seeds()),
    }
    for temperature in (None, 0, 0.0):
        chooser = sampler(subject, temperature=temperature, **limits)
        subject.equal(chooser.choose(given, chooser.streams(len(given))), expected, f"ids at {temperature!r}")
    chooser = sampler(subject, temperature=5e-324, top_k=1)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = chooser.choose(given, chooser.streams(len(given)))
    subject.equal(found, expected, "ids at 5e-324")


def refuses(message: str, f: Any, *args: Any, **named: Any) -> None:
    """Raises AssertionError unless f raises ValueError with this in its message."""
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
    "A setting outside its limits raises ValueError naming it and its value; one at its limit is taken.",
    of="sampling",
    region="sampling",
    source=OWN,
    needs="ops",
    examples=1,
)
def bad_settings_are_named(subject: Any, draw: Draw) -> None:
    for field, values in GOOD.items():
        for value in values:
            subject.modules.sampling.Sampler(**{field: value})
    for field, values in BAD.items():
        for value in values:
            refuses(f"{field} is {value!r};", subject.modules.sampling.Sampler, **{field: value})
