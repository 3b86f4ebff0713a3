"""The order in which two faults at a time are tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tinyxp.comparison.points import Batch
from tinyxp.diagnosis.faults import Fault
from tinyxp.diagnosis.held import WHOLE, Errors, Held
from tinyxp.diagnosis.variant import Variant

Pair = tuple[Fault, Fault]
BEAM = 10
"""How many of the faults that come closest are tried together with every other in a long segment."""
SHORT = 60
"""Up to so many faults all pairs are tried where a try is one step."""


def in_step(ranked: Sequence[Fault]) -> Iterator[Pair]:
    """Every pair of one step's faults, the closest first."""
    return _distinct(itertools.product(ranked if len(ranked) <= SHORT else ranked[:BEAM], ranked))


def in_whole(held: Held, v: Variant, ranked: Sequence[Fault]) -> Iterator[Pair]:
    """Pairs of faults of the whole model, where logits are all that is known.

    The first token sees itself alone, so that positions, masks and scales change nothing there: what
    explains its logits is one of the two, and costs a pass of one column to find.
    """
    first = _first_token(held)
    if first is None:
        yield from _distinct(itertools.product(ranked[:BEAM], ranked))
        return
    start = replace(v, batch=first.batch)
    plain = [fault for fault in ranked if "ids" not in fault.sets]
    alone = {fault: _logits(first, fault.plant(start)) for fault in plain}
    solving = [fault for fault in plain if alone[fault][0] <= 1.0]
    if _logits(first, start)[0] <= 1.0:  # both are of what lies between tokens
        yield from _distinct(itertools.product(solving[: 2 * BEAM], solving))
        return
    yield from _distinct(itertools.product(solving, plain))
    near = sorted((fault for fault in plain if fault not in solving), key=lambda fault: alone[fault][1])
    for one, other in _distinct(itertools.product(near[:BEAM], near)):
        if _logits(first, other.plant(one.plant(start)))[0] <= 1.0:
            yield one, other
    yield from _distinct(itertools.product(ranked[:BEAM], ranked))


def _first_token(held: Held) -> Held | None:
    """The same question about each row's first token; None where a row begins with padding."""
    batch, logits = held.batch, held.trace.get("logits")
    if logits is None or logits.shape[:2] != batch.ids.shape or not batch.real[:, 0].all():
        return None
    return Held(held.weights, Batch(batch.ids[:, :1]), {"logits": logits[:, :1]}, held.dtype)


def _logits(held: Held, v: Variant) -> tuple[float, float]:
    """How many times rounding the logits are off a variant's, and by how much."""
    errors: Errors = {}
    held.run(v, WHOLE, held.measuring(v, errors))
    found = errors["logits"]
    rms = found.distance.rms
    return found.excess if np.isfinite(rms) else np.inf, rms if np.isfinite(rms) else np.inf


def _distinct(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Each pair once, and none of two faults that cannot be there at once."""
    seen: set[frozenset[str]] = set()
    for one, other in pairs:
        key = frozenset((one.key, other.key))
        if one.key != other.key and not one.sets & other.sets and key not in seen:
            seen.add(key)
            yield one, other
