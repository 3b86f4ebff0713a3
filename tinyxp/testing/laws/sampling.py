"""Laws of sampling: the distribution that temperature, top-k and top-p give from logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.strategies import logits

HOLTZMAN = "Holtzman et al., 2019, The Curious Case of Neural Text Degeneration"
FAN = "Fan et al., 2018, Hierarchical Neural Story Generation"
OWN = "tinyxp's own contract: sampling"
POOL_SHAPE = (2, 7)  # of logits, if pooled

law = laws_of("sampling", "sampling", OWN, "ops")


def apply(subject: Any, f: Any, *arrays: Any, dtype: str | None = None, **settings: Any) -> np.ndarray:
    """Call a function of the subject's sampling on its library; omit settings that are None or 1.0.

    It is not compiled, because settings would be compiled in.
    """
    given = {name: x for name, x in settings.items() if x is not None and (name, x) != ("temperature", 1.0)}
    converted = [subject.array(np.asarray(x), dtype) for x in arrays]
    return np.asarray(subject.host(f(*converted, xp=subject.backend.xp, **given)))


def probabilities(subject: Any, scores: Any, **settings: Any) -> np.ndarray:
    """Return the subject's distribution (b, n)."""
    return apply(subject, subject.modules.sampling.probabilities, scores, **settings)


def scores(subject: Any, draw: Draw, *, magnitude: float = 12.0) -> np.ndarray:
    """Draw logits (b, n), some of them equal."""
    rows, columns = POOL_SHAPE
    fixed = {"rows": (rows, rows), "vocab_size": (columns, columns)} if subject.pooled else {}
    return draw("logits", logits(magnitude=magnitude, **fixed))


@law("Greedy is each row's argmax, the lowest id of equal logits.")
def greedy_is_the_argmax_of_each_row(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw, magnitude=draw("magnitude", st.sampled_from([0.5, 12.0])))
    expected = [max(range(len(row)), key=lambda i: (row[i], -i)) for row in given.tolist()]
    subject.equal(apply(subject, subject.modules.sampling.greedy, given), expected, "greedy ids")


@law("With any settings probabilities sum to 1, none is negative, and at least one is positive.")
def probabilities_are_a_distribution(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw)
    settings = {
        "temperature": draw("temperature", st.floats(0.05, 20.0)),
        "top_k": draw("top_k", st.none() | st.integers(1, 14)),
        "top_p": draw("top_p", st.none() | st.floats(0.0, 1.0)),
    }
    found = probabilities(subject, given, **settings)
    subject.equal(found.shape, given.shape, "shape")
    subject.equal(found >= 0.0, np.ones(given.shape), "whether each is 0 or more")
    subject.close(found.sum(axis=-1), np.ones(len(given)), "sum")
    for p, row in zip(found, given, strict=True):
        left_out, stays = row[p == 0.0], row[p > 0.0]
        if left_out.size and stays.size and left_out.max() > stays.min():
            raise AssertionError(f"of logits {row.tolist()} a likelier one has probability 0: {p.tolist()}")


@law(
    "The log ratio of two probabilities is the difference of their logits divided by the temperature.",
    source="Boltzmann's distribution",
)
def temperature_divides_logits(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw)
    temperature = draw("temperature", st.sampled_from([1.0, 0.5, 2.0]) | st.floats(0.25, 20.0))
    found = probabilities(subject, given, temperature=temperature)
    expected = (given - given.max(axis=-1, keepdims=True)) / temperature
    likeliest = found.max(axis=-1, keepdims=True)
    far = expected < -80.0  # the limit of float32's exponents
    subject.close(np.log(np.where(far, 1.0, found / likeliest)), np.where(far, 0.0, expected), "log ratio")
    subject.close(likeliest[:, 0], 1.0 / np.exp(expected).sum(axis=-1), "the largest probability")


@law(
    "top_p 1, a top_k of at least the vocabulary, and None keep every id, however unlikely.",
    source="a running sum of 50,000 float32 probabilities ends at 0.99998",
)
def limits_that_leave_all(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw, magnitude=30.0)
    n = given.shape[1]
    expected = probabilities(subject, given)
    subject.equal(expected > 0.0, np.ones(given.shape), "whether an id may be drawn without limits")
    top_k = draw("top_k", st.none() | st.integers(n, n + 3))
    top_p = draw("top_p", st.none() | st.just(1.0))
    found = probabilities(subject, given, top_k=top_k, top_p=top_p)
    subject.equal(found > 0.0, np.ones(given.shape), "whether an id may be drawn")
    subject.close(found, expected, "probability")


@law(
    "top_k 1, top_p 0 and a temperature near 0 keep only the greedy id; a temperature near 0 also keeps its "
    "equals."
)
def limits_that_leave_the_greedy_id(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw)
    best = given == given.max(axis=-1, keepdims=True)
    lowest = best & (np.cumsum(best, axis=-1) == 1)
    temperature = draw("temperature", st.floats(0.1, 10.0))
    for settings in ({"top_k": 1}, {"top_p": 0.0}, {"top_k": 1, "top_p": 0.0}):
        found = probabilities(subject, given, temperature=temperature, **settings)
        subject.close(found, lowest, f"probability at {settings}")
    # Far from 0: logits over the temperature leave the range of the dtype, but their differences do not.
    huge, far_apart = (1e300, 1e290) if subject.dtype == "float64" else (1e32, 1e29)
    spread = draw("spread", st.sampled_from([0.0, far_apart]))
    far = huge * draw("sign", st.sampled_from([1.0, -1.0])) + spread * given
    found = probabilities(subject, far, temperature=1e-8)
    same = best if spread else np.ones(given.shape, dtype=bool)
    subject.close(found, same / same.sum(axis=-1, keepdims=True), "probability of huge logits")


KNOWN: tuple[tuple[dict[str, Any], tuple[float, ...]], ...] = (
    ({"temperature": 0.5}, (0.8390, 0.1135, 0.0418, 0.0057)),
    ({}, (0.5977, 0.2199, 0.1334, 0.0491)),
    ({"temperature": 2.0}, (0.4228, 0.2564, 0.1997, 0.1211)),
    ({"top_k": 2}, (0.7311, 0.2689, 0.0, 0.0)),
)
"""Settings -> the probabilities of the logits 1.5, 0.5, 0, -1, to four digits."""

NUCLEI: tuple[tuple[tuple[float, ...], float, set[int]], ...] = (
    ((0.5, 0.3, 0.15, 0.05), 0.6, {0, 1}),
    ((0.3, 0.1, 0.1, 0.5), 0.8, {0, 3}),
    ((0.5, 0.41, 0.09), 0.9, {0, 1}),
    ((0.9, 0.1), 0.5, {0}),
    ((0.5, 0.3, 0.15, 0.05), 1.0, {0, 1, 2, 3}),
    ((0.1, 0.2, 0.7), 0.0, {2}),
)
"""Probabilities and top_p -> the ids that are kept."""


@law("Distributions worked out by hand.", source=f"{HOLTZMAN}, section 3.1, worked out", examples=1)
def known_distributions(subject: Any, draw: Draw) -> None:
    for settings, expected in KNOWN:
        found = probabilities(subject, among_others([1.5, 0.5, 0.0, -1.0]), **settings)
        subject.close(found[:, : len(expected)], [expected] * 2, f"probability at {settings}", within=5.1e-5)
    for masses, top_p, stays in NUCLEI:
        found = probabilities(subject, among_others([math.log(m) for m in masses]), top_p=top_p)
        expected_stays = [i in stays for i in range(len(masses))]
        subject.equal(found[0, : len(masses)] > 0.0, expected_stays, f"whether {masses} stay at {top_p}")


def among_others(few: list[float]) -> np.ndarray:
    """Return logits in the pool's shape: two equal rows, with ids beyond ``few`` almost impossible."""
    found = np.full(POOL_SHAPE, -100.0)
    found[:, : len(few)] = few
    return found


@law(
    "Logits in half precision are sampled in at least float32.",
    source="float16 and bfloat16 have three digits and two: a running sum in them stops growing",
)
def half_precision_is_widened(subject: Any, draw: Draw) -> None:
    given = scores(subject, draw, magnitude=3.0)
    narrow = [x for x in subject.backend.dtypes() if x != "float64"]
    dtype = draw("dtype", st.sampled_from(narrow))
    settings = {"temperature": draw("temperature", st.floats(0.5, 4.0)), "top_p": draw("top_p", TOP_P)}
    expected = probabilities(subject, given, dtype="float32", **settings)
    found = probabilities(subject, given, dtype=dtype, **settings)
    subject.equal(str(found.dtype), str(expected.dtype), "dtype of probabilities")
    subject.close(found, expected, f"probability of {dtype} logits", within=1e-6)


TOP_P = st.sampled_from([None, 1.0, 0.5, 0.0])


@law("All axes before the vocabulary's are kept: one row, a batch, every column of a batch.")
def leading_dimensions_are_kept(subject: Any, draw: Draw) -> None:
    sampling = subject.modules.sampling
    flat = scores(subject, draw, magnitude=4.0)
    limits = {
        "top_k": draw("top_k", st.sampled_from([None, 2])),
        "top_p": draw("top_p", st.sampled_from([None, 0.8])),
    }
    uniforms = np.linspace(0.0, 0.9, len(flat))
    masses = probabilities(subject, flat, **limits)
    ids = apply(subject, sampling.draw, masses, uniforms)
    best = apply(subject, sampling.greedy, flat)
    for shape in ((1, *flat.shape), (len(flat), 1, flat.shape[1])):
        given = flat.reshape(shape)
        subject.close(
            probabilities(subject, given, **limits), masses.reshape(shape), f"probabilities of {shape}"
        )
        drawn = apply(subject, sampling.draw, masses.reshape(shape), uniforms.reshape(shape[:-1]))
        subject.equal(drawn, ids.reshape(shape[:-1]), f"ids drawn of {shape}")
        subject.equal(
            apply(subject, sampling.greedy, given), best.reshape(shape[:-1]), f"greedy ids of {shape}"
        )
    subject.close(probabilities(subject, flat[0], **limits), masses[0], "probabilities of one row")
    subject.equal(apply(subject, sampling.draw, masses[0], uniforms[0]), ids[0], "the id drawn of one row")
    subject.equal(apply(subject, sampling.greedy, flat[0]), best[0], "the greedy id of one row")
