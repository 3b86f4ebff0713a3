"""What the first token alone tells, and the order in which two faults at a time are tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tinyxp.doctor.faults import Fault
from tinyxp.doctor.held import WHOLE, Errors, Held
from tinyxp.doctor.traces import Batch
from tinyxp.doctor.variant import Variant

Pair = tuple[Fault, Fault]
BEAM = 10
"""How many of the faults that come closest are tried together with every other in a long segment."""
SHORT = 60
"""Up to so many faults all pairs are tried where a try is one step."""
SCREENED = 3000
"""How many pairs are tried on the first token."""
LOOKS_AHEAD = {"mask", "fill", "softmax_axis", "ids"}
"""What lets a first token depend on others."""


class FirstToken:
    """The logits of each row's first token, which sees itself alone: positions, masks and scales change
    nothing there. What explains the whole explains these too, and costs a pass of one column to rule out.
    """

    def __init__(self, held: Held, v: Variant, faults: Iterable[Fault], in_time: Callable[[], bool]) -> None:
        logits = held.trace["logits"][:, :1]
        self.held = Held(held.weights, Batch(held.batch.ids[:, :1]), {"logits": logits}, held.dtype)
        self.start = replace(v, batch=self.held.batch)
        self.in_time = in_time
        self.right = self.error(())
        self.alone: dict[str, tuple[float, float]] = {}
        for fault in faults:
            if not fault.coarse and not fault.sets & LOOKS_AHEAD and in_time():
                self.alone[fault.key] = self.error((fault,))

    @classmethod
    def of(
        cls, held: Held, v: Variant, faults: Iterable[Fault], in_time: Callable[[], bool]
    ) -> FirstToken | None:
        """None where more than logits is known, or a row begins with padding."""
        fits = list(held.trace) == ["logits"] and held.trace["logits"].shape[:2] == held.batch.ids.shape
        return cls(held, v, faults, in_time) if fits and held.batch.real[:, 0].all() else None

    def error(self, faults: Sequence[Fault]) -> tuple[float, float]:
        """How many times rounding the logits are off with these faults, and by how much."""
        v, errors = planted_in(self.start, faults), Errors()
        self.held.run(v, WHOLE, self.held.measuring(v, errors))
        excess, rms = errors["logits"].excess, errors["logits"].distance.rms
        return (excess, rms) if np.isfinite(rms) else (np.inf, np.inf)

    def allows(self, fault: Fault) -> bool:
        """Whether the fault alone may explain the whole."""
        return fault.key not in self.alone or self.explains(fault)

    def explains(self, fault: Fault) -> bool:
        """Whether the fault alone explains the first token."""
        return fault.key in self.alone and self.alone[fault.key][0] <= 1.0

    def closest(self, faults: Iterable[Fault], count: int) -> list[Fault]:
        """The faults that explain most of the first token."""
        known = [fault for fault in faults if fault.key in self.alone]
        return sorted(known, key=lambda fault: self.alone[fault.key][1])[:count]

    def is_silent(self, fault: Fault) -> bool:
        """Whether the fault leaves the first token alone."""
        if fault.key not in self.alone:
            return not fault.coarse
        return abs(self.alone[fault.key][1] - self.right[1]) <= 1e-6 * self.right[1]


def planted_in(v: Variant, faults: Iterable[Fault]) -> Variant:
    """The variant with these faults too."""
    for fault in faults:
        v = fault.plant(v)
    return v


def in_step(ranked: Sequence[Fault]) -> Iterator[Pair]:
    """Every pair of one step's faults, the closest first."""
    return _distinct(itertools.product(ranked if len(ranked) <= SHORT else ranked[:BEAM], ranked))


def in_whole(first: FirstToken | None, plain: Sequence[Fault], ranked: Sequence[Fault]) -> Iterator[Pair]:
    """Pairs of faults of a long segment: ``ranked`` were tried on all of it, the closest first."""
    if first is not None:
        silent = [fault for fault in plain if first.is_silent(fault)]
        if first.right[0] <= 1.0:  # both are of what lies between tokens
            yield from _distinct(itertools.product([f for f in ranked if f in silent][:BEAM], silent))
            return
        yield from _distinct(itertools.product([f for f in plain if first.explains(f)], silent))
        loud = [fault for fault in plain if fault.key in first.alone and not first.is_silent(fault)]
        near = sorted(loud, key=lambda fault: first.alone[fault.key][1])
        places = sorted(itertools.combinations(range(len(near)), 2), key=sum)[:SCREENED]
        for one, other in _distinct((near[i], near[j]) for i, j in places):
            if not first.in_time():
                return
            if first.error((one, other))[0] <= 1.0:
                yield one, other
    yield from _distinct(itertools.product(ranked[:BEAM], plain))


def _distinct(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Each pair once, and none of two faults that cannot be there at once."""
    seen: set[frozenset[str]] = set()
    for one, other in pairs:
        key = frozenset((one.key, other.key))
        if one.key != other.key and not one.sets & other.sets and key not in seen:
            seen.add(key)
            yield one, other
