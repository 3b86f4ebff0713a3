"""Laws of the key/value cache: it saves work and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.strategies import chunkings
from tinyxp.testing.subjects.base import Subject

SOURCE = "Pope et al., 2022, Efficiently Scaling Transformer Inference"

law = laws_of("model", "cache", SOURCE, "cache")


def draw_pieces(subject: Subject, draw: Draw, t: int) -> list[int]:
    """Draw a way of cutting t columns into pieces."""
    few = st.sampled_from([[3, 2], [3, 1, 1]])
    return draw("pieces", few if subject.pooled else chunkings(t))


def feed(model: Any, ids: np.ndarray, cuts: list[int], cache: Any, **named: Any) -> tuple[np.ndarray, Any]:
    """Feed ids piece by piece; return the logits of all columns, and the cache."""
    pieces, start = [], 0
    for width in cuts:
        piece = slice(start, start + width)
        here = {name: x[:, piece] for name, x in named.items()}
        logits, cache = model.extend(ids[:, piece], cache, **here)
        pieces.append(logits)
        start += width
    return np.concatenate(pieces, axis=1), cache


@law("Feeding ids to a cache, in any chunks, gives the logits of one pass without it.")
def cache_equals_full_pass(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(1, 8))
    spare = draw("spare", st.just(1) if subject.pooled else st.integers(0, 3))
    cuts = draw_pieces(subject, draw, ids.shape[1])
    logits, _ = feed(model, ids, cuts, model.new_cache(len(ids), ids.shape[1] + spare))
    subject.close(logits, model.forward(ids), f"logits fed in pieces of {cuts}")


@law(
    "Feeding padded ids to a cache, in any chunks, gives the logits of one pass: each row counts its own "
    "positions.",
    needs="cache mask",
)
def padded_cache_equals_full_pass(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    cuts = draw_pieces(subject, draw, ids.shape[1])
    logits, _ = feed(model, ids, cuts, model.new_cache(len(ids), ids.shape[1] + 1), mask=mask)
    expected = model.forward(ids, mask=mask)
    subject.close(logits[mask], expected[mask], f"logits of real tokens fed in pieces of {cuts}")


@law(
    "Explicit positions mean the same with a cache as without, and counting continues from the last one.",
    needs="cache positions params",
)
def given_positions_with_a_cache(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(2, 6))
    t = ids.shape[1]
    gaps = draw("gaps", st.lists(st.integers(0, 1), min_size=t - 1, max_size=t - 1))
    positions = np.tile(np.cumsum([0, *(1 + gap for gap in gaps)]), (len(ids), 1))
    cuts = draw_pieces(subject, draw, t)
    logits, cache = feed(model, ids, cuts, model.new_cache(len(ids), t + 1), positions=positions)
    whole = model.forward(ids, positions=positions)
    subject.close(logits, whole, f"logits fed in pieces of {cuts}")
    last = positions[:, -1:] + 1
    if int(last.max()) < model.max_seq_len:
        after, _ = model.extend(ids[:, :1], cache)
        again = np.concatenate([ids, ids[:, :1]], axis=1)
        expected = model.forward(again, positions=np.concatenate([positions, last], axis=1))
        subject.close(after, expected[:, -1:], "logits of a column after given positions")


@law(
    "A cache is a value: two continuations of one cache affect neither each other nor the cache.",
    source="tinyxp's own contract: extend returns a new cache",
    needs="cache values",
)
def a_cache_can_branch(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(2, 6))
    column = draw("column", subject.columns(1, ids.shape[1] - 1))
    step = draw("step", st.integers(1, max(model.vocab_size - 1, 1)))
    others = (ids + step) % model.vocab_size
    _, trunk = model.extend(ids[:, :column], model.new_cache(len(ids), ids.shape[1] + 1))
    first, branch = model.extend(ids[:, column:], trunk)
    model.extend(others[:, column:], trunk)
    after, _ = model.extend(ids[:, :1], branch)
    expected = model.forward(np.concatenate([ids, ids[:, :1]], axis=1))[:, -1:]
    subject.close(after, expected, "logits after one continuation, once another was computed")
    again, _ = model.extend(ids[:, column:], trunk)
    subject.equal(again, first, "logits of the same continuation, before and after another")


def last_real_logits(params: Any, ids: Any, cache: Any, mask: Any, *, model: Any) -> Any:
    logits, _ = model.extend(params, ids, cache, mask=mask, last=True)
    return logits


@law(
    "last=True returns the logits of each row's last real column.",
    source="tinyxp's own contract: extend",
    needs="cache mask params",
)
def last_is_the_last_real_column(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    f = subject.compiled(last_real_logits, model=subject.modules.model)
    cache = model.new_cache(*ids.shape)
    found = subject.host(f(model.params, subject.array(ids), cache, subject.array(mask)))
    whole = model.forward(ids, mask=mask)
    last = [int(np.flatnonzero(real)[-1]) for real in mask]
    subject.close(found, whole[np.arange(len(ids)), last][:, None], f"logits of columns {last}")
    subject.equal(found.shape, (len(ids), 1, model.vocab_size), "shape")
