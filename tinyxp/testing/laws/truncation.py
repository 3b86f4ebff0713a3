"""Laws of sampling: just which ids top-k and top-p leave, by exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.sampling import FAN, HOLTZMAN, OWN, POOL_SHAPE, probabilities

TIE = Fraction(5, 10**7)
"""How close below top_p a mass has reached it."""
POWERS = {0.5: 4, 1.0: 2, 2.0: 1}
"""Temperature -> the power of w that is proportional to the probability of the logit 2 log w."""


def weighted(subject: Any, draw: Draw, *, low: int = 1, high: int = 6, columns: int = 10) -> list[list[int]]:
    """Drawn rows of integers w; their logits 2 log w have probabilities that are known exactly."""
    sizes = st.just(POOL_SHAPE) if subject.pooled else st.tuples(st.integers(1, 3), st.integers(low, columns))
    rows = sizes.flatmap(
        lambda size: st.lists(
            st.lists(st.integers(1, high), min_size=size[1], max_size=size[1]),
            min_size=size[0],
            max_size=size[0],
        )
    )
    return draw("weights", rows)


def logs(weights: list[list[int]]) -> np.ndarray:
    """The logits of weights."""
    return np.asarray([[2.0 * math.log(w) for w in row] for row in weights])


def truncated(masses: list[int], top_k: int | None, top_p: float | None) -> list[Fraction]:
    """The exact distribution: the top_k heaviest, then the fewest of them whose mass reaches top_p, of
    equals the lower ids. Rejects the example where rounding decides."""
    kept = sorted(range(len(masses)), key=lambda i: (-masses[i], i))[:top_k]
    if top_p is not None and top_p < 1.0:
        total, needed, mass = sum(masses[i] for i in kept), Fraction(top_p) - TIE, Fraction(0)
        nucleus: list[int] = []
        for i in kept:
            assume(not nucleus or abs(mass - needed) > TIE / 2)
            if nucleus and mass >= needed:
                break
            nucleus.append(i)
            mass += Fraction(masses[i], total)
        kept = nucleus
    total = sum(masses[i] for i in kept)
    return [Fraction(m, total) if i in kept else Fraction(0) for i, m in enumerate(masses)]


def same_distribution(subject: Any, found: np.ndarray, expected: Any, what: str) -> None:
    """Close, and 0 exactly where it is expected to be."""
    wanted = np.asarray([[float(x) for x in row] for row in expected])
    subject.close(found, wanted, what)
    subject.equal(found > 0.0, wanted > 0.0, f"{what}: whether an id may be drawn")


def top_ps(weights: list[list[int]], temperature: float) -> st.SearchStrategy[float | None]:
    """Of every kind: those that the mass of some of the likeliest of a row reaches exactly among them."""
    exact = set()
    for row in weights:
        masses = sorted((w ** POWERS[temperature] for w in row), reverse=True)
        exact |= {sum(masses[: i + 1]) / sum(masses) for i in range(len(masses))}
    return st.none() | st.sampled_from([*sorted(exact), 0.0, 0.3, 0.9]) | st.floats(0.0, 1.0, width=32)


@law(
    "Just those ids stay that temperature, then top-k, then top-p leave, by exact arithmetic; their ratios "
    "stay too.",
    of="sampling",
    region="sampling",
    source=f"{FAN}; {HOLTZMAN}; the order is that of transformers",
    needs="ops",
)
def truncation_is_exact(subject: Any, draw: Draw) -> None:
    weights = weighted(subject, draw)
    temperature = draw("temperature", st.sampled_from([1.0, 0.5, 2.0]))
    top_k = draw("top_k", st.none() | st.integers(1, len(weights[0]) + 1))
    top_p = draw("top_p", top_ps(weights, temperature))
    expected = [truncated([w ** POWERS[temperature] for w in row], top_k, top_p) for row in weights]
    found = probabilities(subject, logs(weights), temperature=temperature, top_k=top_k, top_p=top_p)
    same_distribution(subject, found, expected, "probability")


@law(
    "Of equal logits the lower ids stay, in vocabularies too that are sorted in another way.",
    of="sampling",
    region="sampling",
    source="a sort that is not stable puts equals in any order: torch's does, from 17 on",
    needs="ops",
)
def of_equals_the_lower_ids_stay(subject: Any, draw: Draw) -> None:
    n = draw("n", st.just(30) if subject.pooled else st.integers(17, 60))
    row = draw("weights", st.lists(st.integers(1, 2), min_size=n, max_size=n))
    top_k = draw("top_k", st.none() | st.integers(1, n))
    top_p = draw("top_p", top_ps([row], 2.0))
    found = probabilities(subject, logs([row]), temperature=2.0, top_k=top_k, top_p=top_p)
    same_distribution(subject, found, [truncated(row, top_k, top_p)], "probability")


@law(
    "A mass that is less than 5e-7 below top_p has reached it; one that is farther has not.",
    of="sampling",
    region="sampling",
    source=OWN,
    needs="ops",
)
def a_mass_just_below_top_p_has_reached_it(subject: Any, draw: Draw) -> None:
    [row, *_] = weights = weighted(subject, draw, low=2)
    masses = sorted((w * w for w in row), reverse=True)
    count = draw("count", st.integers(1, len(row) - 1))
    reaches = draw("reaches", st.booleans())
    gap = (4.9e-7 if reaches else 5.1e-7) if subject.dtype == "float64" else (1e-7 if reaches else 9e-7)
    top_p = sum(masses[:count]) / sum(masses) + gap
    found = probabilities(subject, logs(weights), top_p=top_p)[0]
    subject.equal(int((found > 0.0).sum()), count + (not reaches), f"how many ids stay at top_p {top_p!r}")


def processed(given: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    """transformers' distribution (b, n)."""
    theirs = import_module("tinyxp.backends.transformers")
    return np.asarray(theirs.processors(**settings)(given))


@law(
    "transformers' processors give the same distribution, where no logits are equal and no mass is top_p.",
    of="sampling",
    region="sampling",
    source="transformers' TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper",
    needs="ops torch transformers",
    is_reference=True,
)
def transformers_processors_agree(subject: Any, draw: Draw) -> None:
    rows, n = POOL_SHAPE if subject.pooled else (2, draw("n", st.integers(1, 12)))
    steps = st.lists(st.integers(-40, 40), min_size=n, max_size=n, unique=True)
    given = np.asarray(draw("steps", st.lists(steps, min_size=rows, max_size=rows))) / 4.0
    settings = {
        "temperature": draw("temperature", st.floats(0.25, 4.0)),
        "top_k": draw("top_k", st.none() | st.integers(1, n + 1)),
        "top_p": draw("top_p", st.none() | st.floats(0.0, 0.999)),
    }
    if settings["top_p"] is not None:
        whole = processed(given, settings | {"top_p": None})
        masses = np.cumsum(-np.sort(-whole, axis=-1), axis=-1)
        assume(np.all(np.abs(masses - settings["top_p"]) > 1e-6))
    found = probabilities(subject, given, **settings)
    expected = processed(given, settings)
    subject.close(found, expected, "probability", within=2e-14 if subject.dtype == "float64" else 2e-6)
    subject.equal(found > 0.0, expected > 0.0, "whether an id may be drawn")
