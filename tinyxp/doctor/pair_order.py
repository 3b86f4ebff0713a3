"""The order in which two faults at once are tried, and what the first token alone rules out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tinyxp.doctor.budget import Budget
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import Fault
from tinyxp.doctor.traces import Batch
from tinyxp.doctor.variant import Variant

Pair = tuple[Fault, Fault]
BEAM = 10
"""How many of the closest faults are tried with every other fault in a long segment."""
SHORT = 60
"""Up to so many faults, all pairs are tried if a try is one step."""
SCREENED = 3000
"""How many pairs are tried on the first token."""
LOOKS_AHEAD = {"mask", "fill", "softmax axis", "ids"}
"""The choices that make a first token depend on others."""


class FirstToken:
    """Tries faults on the logits of each row's first token, which sees itself alone.

    Positions, masks and scales change nothing there. A fault that explains all logits explains these too,
    and to rule it out costs a pass of one column.
    """

    def __init__(self, evidence: Evidence, v: Variant, faults: Iterable[Fault], budget: Budget) -> None:
        batch = Batch(evidence.batch.ids[:, :1])
        logits = {"logits": evidence.points["logits"][:, :1]}
        self._evidence = Evidence(evidence.weights, batch, logits, evidence.dtype)
        self._start = replace(v, batch=batch)
        self._budget = budget
        self.right = self._error()
        self._alone: dict[str, tuple[float, float]] = {}
        for fault in faults:
            if not fault.narrow and fault.choice not in LOOKS_AHEAD and budget.is_left():
                self._alone[fault.key] = self._error(fault)

    @classmethod
    def of(cls, evidence: Evidence, v: Variant, faults: Iterable[Fault], budget: Budget) -> FirstToken | None:
        """None if more than logits is known, or a row begins with padding."""
        is_usable = (
            list(evidence.points) == ["logits"]
            and evidence.points["logits"].shape[:2] == evidence.batch.ids.shape
            and bool(evidence.batch.real[:, 0].all())
        )
        return cls(evidence, v, faults, budget) if is_usable else None

    def _error(self, *faults: Fault) -> tuple[float, float]:
        """The error of the logits with these faults, as a multiple of rounding and as it is."""
        errors = self._evidence.errors(self._start.with_faults(*faults), self._evidence.whole)
        excess, rms = errors["logits"].excess, errors["logits"].distance.rms
        return (excess, rms) if np.isfinite(rms) else (np.inf, np.inf)

    def allows(self, fault: Fault) -> bool:
        """Whether the fault alone may explain all logits."""
        return fault.key not in self._alone or self.explains(fault)

    def explains(self, fault: Fault) -> bool:
        """Whether the fault alone explains the first token."""
        return fault.key in self._alone and self._alone[fault.key][0] <= 1.0

    def closest(self, faults: Iterable[Fault], count: int) -> list[Fault]:
        """The faults that explain most of the first token."""
        known = [fault for fault in faults if fault.key in self._alone]
        return sorted(known, key=lambda fault: self._alone[fault.key][1])[:count]

    def is_silent(self, fault: Fault) -> bool:
        """Whether the fault does not change the first token."""
        if fault.key not in self._alone:
            return not fault.narrow
        return abs(self._alone[fault.key][1] - self.right[1]) <= 1e-6 * self.right[1]

    def pairs(self, faults: Sequence[Fault], ranked: Sequence[Fault]) -> Iterator[Pair]:
        """The pairs that may explain all logits. ``ranked`` were tried on all of them, the closest first."""
        silent = [fault for fault in faults if self.is_silent(fault)]
        if self.right[0] <= 1.0:  # neither fault changes the first token
            yield from _distinct(itertools.product([f for f in ranked if f in silent][:BEAM], silent))
            return
        yield from _distinct(itertools.product([f for f in faults if self.explains(f)], silent))
        loud = [fault for fault in faults if not self.is_silent(fault)]
        near = self.closest(loud, len(loud))
        places = sorted(itertools.combinations(range(len(near)), 2), key=sum)[:SCREENED]
        for pair in _distinct((near[i], near[j]) for i, j in places):
            if not self._budget.is_left():
                return
            if self._error(*pair)[0] <= 1.0:
                yield pair
        yield from _distinct(itertools.product(ranked[:BEAM], faults))


def pairs_of_one_step(ranked: Sequence[Fault]) -> Iterator[Pair]:
    """Every pair of the faults of one step, the closest first."""
    return _distinct(itertools.product(ranked if len(ranked) <= SHORT else ranked[:BEAM], ranked))


def pairs_of_segment(ranked: Sequence[Fault], faults: Sequence[Fault]) -> Iterator[Pair]:
    """Pairs of the closest faults with all others, for a long segment."""
    return _distinct(itertools.product(ranked[:BEAM], faults))


def _distinct(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Each pair once, without pairs that make one choice twice."""
    seen: set[frozenset[str]] = set()
    for one, other in pairs:
        key = frozenset((one.key, other.key))
        is_possible = one.key != other.key and (one.choice != other.choice or not one.choice)
        if is_possible and key not in seen:
            seen.add(key)
            yield one, other
