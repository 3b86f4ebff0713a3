"""From logits to the next token: greedy, or drawn after temperature, top-k and top-p, in that order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyxp.checks import as_integer, is_number
from tinyxp.ops import softmax, widen
from tinyxp.typing import Array, Namespace

TIE = 5e-7
"""A probability mass this close below top_p has reached it: float32 logits do not tell them apart."""


def greedy(logits: Array, *, xp: Namespace) -> Array:
    """argmax over the last axis, the lowest id of equals. logits (..., n) -> (...)."""
    best: Array = xp.argmax(logits, axis=-1)
    return best


def probabilities(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    xp: Namespace,
) -> Array:
    """softmax(logits / temperature) over the top_k likeliest tokens, then over the fewest of those whose mass
    reaches top_p (or comes within 5e-7 of it), at least one. Everything else is exactly 0. Of equally
    likely tokens the lower ids stay.

    logits (..., n), temperature > 0 -> (..., n), rows summing to 1, in float32 at least.
    (Fan et al., 2018; Holtzman et al., 2019.)
    """
    wide = widen(logits, xp=xp)
    wide = (wide - xp.max(wide, axis=-1, keepdims=True)) / temperature
    if top_p is not None and top_p >= 1.0:
        top_p = None  # a sum of many rounded masses may not reach 1
    visible = None
    if top_k is not None or top_p is not None:
        order = xp.argsort(-wide, axis=-1, stable=True)
        rank = xp.argsort(order, axis=-1)
        visible = rank < (wide.shape[-1] if top_k is None else top_k)
        if top_p is not None:
            descending = xp.take_along_axis(softmax(wide, visible=visible, xp=xp), order, axis=-1)
            mass_before = xp.cumulative_sum(descending, axis=-1) - descending
            within = xp.take_along_axis(mass_before, rank, axis=-1) < top_p - TIE
            visible = visible & (within | (rank == 0))
    return softmax(wide, visible=visible, xp=xp)


def draw(probabilities: Array, uniforms: Array, *, xp: Namespace) -> Array:
    """The inverse of the cumulative distribution in id order: the first id whose cumulative mass exceeds u.

    probabilities (..., n), uniforms (...) in [0, 1) -> (...); an id of probability 0 is never drawn.
    """
    mass = xp.cumulative_sum(probabilities, axis=-1)
    target = uniforms[..., None] * mass[..., -1:]
    ids = xp.arange(probabilities.shape[-1], device=getattr(probabilities, "device", None))
    likely = probabilities > 0.0
    reached = likely & (mass > target)
    first: Array = xp.min(xp.where(reached, ids, ids.shape[0]), axis=-1)
    last = xp.max(xp.where(likely, ids, 0), axis=-1)
    return xp.where(first < ids.shape[0], first, last)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Choose the next token on the host in float64, so that the choice is the same for every backend.

    Row r takes its uniforms from ``numpy.random.default_rng([seed, r])``, one a step, so that neither the
    library nor the other rows matter. Raise ValueError naming the setting and its limit.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.temperature) or self.temperature < 0.0:
            raise ValueError(f"temperature is {self.temperature!r}; it must be a finite number of 0 or more")
        if self.top_k is not None:
            as_integer("top_k", self.top_k, low=1)
        if self.top_p is not None and (not is_number(self.top_p) or not 0.0 <= self.top_p <= 1.0):
            raise ValueError(f"top_p is {self.top_p!r}; it must be a number from 0 to 1")
        if self.seed is not None:
            as_integer("seed", self.seed, low=0)

    def streams(self, rows: int) -> list[np.random.Generator]:
        """Return each row's source of uniforms."""
        return [np.random.default_rng(None if self.seed is None else [self.seed, row]) for row in range(rows)]

    def choose(self, logits: np.ndarray, streams: list[np.random.Generator]) -> np.ndarray:
        """Return the next id of each row, drawn with one uniform of its stream. logits (b, n) -> (b,)."""
        if self.temperature == 0.0:
            return np.asarray(greedy(logits, xp=np))
        with np.errstate(over="ignore"):  # a temperature near 0 sends all but the likeliest to -inf
            p = probabilities(logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, xp=np)
        return np.asarray(draw(p, np.asarray([stream.random() for stream in streams]), xp=np))
