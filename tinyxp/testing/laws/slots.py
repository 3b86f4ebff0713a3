"""Laws of write_cache: new columns fill their slots, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.operands import apply_to_arrays, normal, shapes
from tinyxp.testing.strategies import seeds
from tinyxp.testing.subjects.decoder import Decoder

SOURCE = "Pope et al., 2022: Efficiently scaling transformer inference, section 3.1"
VALUE = "tinyxp's own contract: a cache is a value"

law = laws_of("op", "cache", SOURCE, "ops values")


def written(ops: Any, xp: Any, cache: Any, new: Any, start: Any, slots: Any) -> Any:
    return ops.write_cache(cache, new, start, slots, xp=xp)


def draw_columns(subject: Decoder, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a cache (b, g, s, hd) and new columns (b, g, t, hd); return them with the slot numbers (s,)."""
    limits = ((1, 2), (1, 3), (1, 5), (0, 3), (1, 4))
    b, g, t, more, hd = draw("b, g, t, s - t, hd", shapes(subject, *limits, pool=[(2, 3, 2, 3, 1)]))
    seed = draw("seed", seeds())
    cache, new = normal(seed, b, g, t + more, hd), normal(seed + 1, b, g, t, hd)
    if draw("of bools", st.booleans()):
        cache, new = cache > 0.0, new > 0.0
    return cache, new, np.arange(t + more)


@law(
    "The t slots from start on contain the new columns in order; every other slot is unchanged.", needs="ops"
)
def new_columns_take_their_slots(subject: Decoder, draw: Draw) -> None:
    cache, new, slots = draw_columns(subject, draw)
    start = draw("start", st.integers(0, cache.shape[2] - new.shape[2]))
    expected = cache.copy()
    for column in range(new.shape[2]):
        expected[:, :, start + column] = new[:, :, column]
    if expected.dtype != bool:
        expected = subject.host(subject.array(expected))
    for given in (np.asarray(start), start):
        found = subject.run(written, cache, new, given, slots)
        subject.equal(found, expected, f"the cache, written from slot {start}")


@law(
    "New columns beyond the last slot are dropped.",
    source="tinyxp's own contract: extend under a compiler, which cannot raise",
)
def columns_beyond_the_cache_are_dropped(subject: Decoder, draw: Draw) -> None:
    cache, new, slots = draw_columns(subject, draw)
    start = draw("start", st.integers(0, len(slots)))
    found = subject.run(written, cache, new, np.asarray(start), slots)
    wide = np.concatenate([cache, np.zeros_like(new)], axis=2)
    wide[:, :, start : start + new.shape[2]] = new
    expected = wide[:, :, : len(slots)]
    expected = expected if expected.dtype == bool else subject.host(subject.array(expected))
    subject.equal(found, expected, f"the cache, written from slot {start}")


@law("write_cache returns a copy: its arguments stay unchanged.", source=VALUE)
def write_cache_leaves_its_arguments(subject: Decoder, draw: Draw) -> None:
    cache, new, slots = draw_columns(subject, draw)
    start = np.asarray(draw("start", st.integers(0, cache.shape[2] - new.shape[2])))
    arrays = [subject.array(x) for x in (cache, new, start, slots)]
    before = [subject.host(x).copy() for x in arrays]
    apply_to_arrays(subject, written, *arrays)
    for x, expected in zip(arrays, before, strict=True):
        subject.equal(subject.host(x), expected, "an argument of write_cache, afterwards")
