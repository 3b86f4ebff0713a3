"""Laws of the key/value cache: it saves work and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.laws.padding import padded
from tinyxp.testing.strategies import chunkings
from tinyxp.testing.subject import Subject

SOURCE = "Pope et al., 2022, Efficiently Scaling Transformer Inference"


def pieces(subject: Subject, draw: Draw, t: int) -> list[int]:
    """A drawn way of cutting t columns."""
    few = st.sampled_from([[3, 2], [3, 1, 1]])
    return draw("pieces", few if subject.pooled else chunkings(t))


def fed(model: Any, ids: np.ndarray, cuts: list[int], cache: Any, **named: Any) -> tuple[np.ndarray, Any]:
    """The logits of all columns, fed piece by piece, and the cache after them."""
    found, start = [], 0
    for width in cuts:
        piece = slice(start, start + width)
        here = {name: x[:, piece] for name, x in named.items()}
        logits, cache = model.extend(ids[:, piece], cache, **here)
        found.append(logits)
        start += width
    return np.concatenate(found, axis=1), cache


@law(
    "However ids are cut into chunks, feeding them to a cache gives the logits of one pass without it.",
    of="model",
    region="cache",
    source=SOURCE,
    needs="cache",
)
def cache_equals_full_pass(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(1, 8))
    spare = draw("spare", st.just(1) if subject.pooled else st.integers(0, 3))
    cuts = pieces(subject, draw, ids.shape[1])
    logits, _ = fed(model, ids, cuts, model.new_cache(len(ids), ids.shape[1] + spare))
    subject.close(logits, model.forward(ids), f"logits fed in pieces of {cuts}")


@law(
    "The same with padding, whatever chunks it falls into: each row counts its own positions.",
    of="model",
    region="cache",
    source=SOURCE,
    needs="cache mask",
)
def padded_cache_equals_full_pass(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    cuts = pieces(subject, draw, ids.shape[1])
    logits, _ = fed(model, ids, cuts, model.new_cache(len(ids), ids.shape[1] + 1), mask=mask)
    expected = model.forward(ids, mask=mask)
    subject.close(logits[mask], expected[mask], f"logits of real tokens fed in pieces of {cuts}")


@law(
    "Positions that are given are those of the pass without a cache, and counting goes on from the last.",
    of="model",
    region="cache",
    source=SOURCE,
    needs="cache positions params",
)
def given_positions_with_a_cache(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(2, 6))
    t = ids.shape[1]
    gaps = draw("gaps", st.lists(st.integers(0, 1), min_size=t - 1, max_size=t - 1))
    positions = np.tile(np.cumsum([0, *(1 + gap for gap in gaps)]), (len(ids), 1))
    cuts = pieces(subject, draw, t)
    logits, cache = fed(model, ids, cuts, model.new_cache(len(ids), t + 1), positions=positions)
    whole = model.forward(ids, positions=positions)
    subject.close(logits, whole, f"logits fed in pieces of {cuts}")
    last = positions[:, -1:] + 1
    if int(last.max()) < model.max_seq_len:
        after, _ = model.extend(ids[:, :1], cache)
        again = np.concatenate([ids, ids[:, :1]], axis=1)
        expected = model.forward(again, positions=np.concatenate([positions, last], axis=1))
        subject.close(after, expected[:, -1:], "logits of a column after given positions")


@law(
    "A cache is a value: two continuations of one do not disturb each other, nor what it holds.",
    of="model",
    region="cache",
    source="tinyxp's own contract: extend returns a new cache",
    needs="cache values",
)
def a_cache_can_branch(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(2, 6))
    column = draw("column", subject.columns(1, ids.shape[1] - 1))
    step = draw("step", st.integers(1, max(model.vocab_size - 1, 1)))
    others = (ids + step) % model.vocab_size
    _, trunk = model.extend(ids[:, :column], model.new_cache(len(ids), ids.shape[1]))
    first, _ = model.extend(ids[:, column:], trunk)
    model.extend(others[:, column:], trunk)
    again, _ = model.extend(ids[:, column:], trunk)
    subject.equal(again, first, "logits of the same continuation, before and after another")


def last_real_logits(params: Any, ids: Any, cache: Any, mask: Any, *, model: Any) -> Any:
    logits, _ = model.extend(params, ids, cache, mask=mask, last=True)
    return logits


@law(
    "last=True gives the logits of each row's last real column, and the same cache.",
    of="model",
    region="cache",
    source="tinyxp's own contract: extend",
    needs="cache mask params",
)
def last_is_the_last_real_column(subject: Any, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    f = subject.compiled(last_real_logits, model=subject.modules.model)
    cache = model.new_cache(*ids.shape)
    found = subject.host(f(model.params, subject.array(ids), cache, subject.array(mask)))
    whole = model.forward(ids, mask=mask)
    last = [int(np.flatnonzero(real)[-1]) for real in mask]
    subject.close(found, whole[np.arange(len(ids)), last][:, None], f"logits of columns {last}")
    subject.equal(found.shape, (len(ids), 1, model.vocab_size), "shape")
