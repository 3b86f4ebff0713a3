"""Laws of sampling: which ids top-k and top-p keep, by exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.sampling import FAN, HOLTZMAN, OWN, POOL_SHAPE, probabilities
from tinyxp.testing.references import reference

TIE = Fraction(5, 10**7)
"""A mass this close below top_p counts as having reached it."""
POWERS = {0.5: 4, 1.0: 2, 2.0: 1}
"""Temperature -> the power of w that is proportional to the probability of the logit 2 log w."""

law = laws_of("sampling", "sampling", OWN, "ops")


def draw_weights(
    subject: Any, draw: Draw, *, low: int = 1, high: int = 6, columns: int = 10
) -> list[list[int]]:
    """Draw rows of integers w; their logits 2 log w have probabilities that are known exactly."""
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
    """Return the logits of weights."""
    return np.asarray([[2.0 * math.log(w) for w in row] for row in weights])


def truncated(masses: list[int], top_k: int | None, top_p: float | None) -> list[Fraction]:
    """Return the exact distribution: the top_k heaviest, then the fewest whose mass reaches top_p.

    Of equals the lower ids are kept. Reject an example that rounding decides.
    """
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
    """Raise AssertionError unless they are close, and 0 at the same ids."""
    wanted = np.asarray([[float(x) for x in row] for row in expected])
    subject.close(found, wanted, what)
    subject.equal(found > 0.0, wanted > 0.0, f"{what}: whether an id may be drawn")


def mass_sums(row: list[int], temperature: float, top_k: int | None) -> list[float]:
    """Return the masses of the one, two, ... most likely of the ids that top_k keeps."""
    masses = sorted((w ** POWERS[temperature] for w in row), reverse=True)[:top_k]
    return [sum(masses[: i + 1]) / sum(masses) for i in range(len(masses))]


def top_ps(
    weights: list[list[int]], temperature: float, top_k: int | None = None
) -> st.SearchStrategy[float | None]:
    """Return a strategy for top_p; some values equal the mass of a row's most likely ids exactly."""
    exact = set()
    for row in weights:
        exact |= set(mass_sums(row, temperature, top_k))
    return st.none() | st.sampled_from([*sorted(exact), 0.0, 0.3, 0.9]) | st.floats(0.0, 1.0, width=32)


@law(
    "Temperature, then top-k, then top-p keep exactly the ids, and the ratios, that exact arithmetic keeps.",
    source=f"{FAN}; {HOLTZMAN}; the order is that of transformers",
)
def truncation_is_exact(subject: Any, draw: Draw) -> None:
    weights = draw_weights(subject, draw)
    temperature = draw("temperature", st.sampled_from([1.0, 0.5, 2.0]))
    n = len(weights[0])
    k = draw("top_k", st.integers(1, n) | st.integers(1, n + 1))
    p = draw("top_p", top_ps(weights, temperature, k))
    half = max(n // 2, 1)
    middle = float(np.median(mass_sums(weights[0], temperature, half)))
    for top_k, top_p in product((None, k, half), (None, p, middle)):
        expected = [truncated([w ** POWERS[temperature] for w in row], top_k, top_p) for row in weights]
        found = probabilities(subject, logs(weights), temperature=temperature, top_k=top_k, top_p=top_p)
        same_distribution(subject, found, expected, f"probability with top_k {top_k} and top_p {top_p}")


@law(
    "Of equal logits the lower ids are kept, also in vocabularies long enough for an unstable sort.",
    source="an unstable sort orders equals arbitrarily: torch's does, from 17 on",
)
def of_equals_the_lower_ids_stay(subject: Any, draw: Draw) -> None:
    n = draw("n", st.just(30) if subject.pooled else st.integers(17, 60))
    row = draw("weights", st.lists(st.integers(1, 2), min_size=n, max_size=n))
    top_k = draw("top_k", st.none() | st.integers(1, n))
    top_p = draw("top_p", top_ps([row], 2.0))
    found = probabilities(subject, logs([row]), temperature=2.0, top_k=top_k, top_p=top_p)
    same_distribution(subject, found, [truncated(row, top_k, top_p)], "probability")


@law("A mass less than 5e-7 below top_p counts as having reached it; one further below does not.")
def a_mass_just_below_top_p_has_reached_it(subject: Any, draw: Draw) -> None:
    [row, *_] = weights = draw_weights(subject, draw, low=2)
    masses = sorted((w * w for w in row), reverse=True)
    count = draw("count", st.integers(1, len(row) - 1))
    reaches = draw("reaches", st.booleans())
    gap = (4.9e-7 if reaches else 5.1e-7) if subject.dtype == "float64" else (1e-7 if reaches else 9e-7)
    top_p = sum(masses[:count]) / sum(masses) + gap
    found = probabilities(subject, logs(weights), top_p=top_p)[0]
    subject.equal(int((found > 0.0).sum()), count + (not reaches), f"how many ids stay at top_p {top_p!r}")


def processed(given: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    """Return transformers' distribution (b, n)."""
    return np.asarray(reference("decoder").processors(**settings)(given))


@law(
    "transformers' processors give the same distribution if no logits are equal and no mass equals top_p.",
    source="transformers' TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper",
    needs="ops reference-decoder",
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
