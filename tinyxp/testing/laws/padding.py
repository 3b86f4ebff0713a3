"""Laws of padding: with a mask, a padded row is computed as the row without its padding."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.strategies import padded_batches
from tinyxp.testing.subjects.base import Subject

SOURCE = "Hugging Face's attention_mask and the position_ids that its generate counts from it"

law = laws_of("model", "padding", SOURCE, "mask")


def draw_padded(subject: Subject, draw: Draw, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw ids and mask (b, t)."""
    ids, mask = draw("batch", padded_batches(model, **subject.shape((1, 3), (1, 8))))
    return np.asarray(ids), np.asarray(mask)


def logits_alone(subject: Subject, model: Any, ids: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """Return each row's logits (length, n), computed without its padding.

    If pooled, the row's tokens are moved to the front and the padding follows, which causality allows.
    """
    found = []
    for row, real in zip(ids, mask, strict=True):
        if subject.pooled:
            front = np.argsort(~real, kind="stable")
            found.append(model.forward(np.stack([row[front]] * len(ids)))[0, : real.sum()])
        else:
            found.append(model.forward(row[None, real])[0])
    return found


@law("A padded row has the logits of the row alone, with padding on the left, on the right or on both sides.")
def padding_invariance(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    logits = model.forward(ids, mask=mask)
    for r, expected in enumerate(logits_alone(subject, model, ids, mask)):
        subject.close(logits[r, mask[r]], expected, f"logits of row {r} without its padding")


@law("Which ids are on padding changes nothing.")
def padding_is_unseen(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    step = draw("step", st.integers(1, max(model.vocab_size - 1, 1)))
    others = np.where(mask, ids, (ids + step) % model.vocab_size)
    found, expected = model.forward(others, mask=mask), model.forward(ids, mask=mask)
    subject.close(found[mask], expected[mask], "logits of real tokens")


@law("A mask of ones is the same as no mask.")
def a_full_mask_is_none(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    subject.close(model.forward(ids, mask=np.ones(ids.shape, dtype=bool)), model.forward(ids), "logits")


@law(
    "Rows of padding only, and the padding of other rows, have finite logits: none is NaN.",
    source="a softmax over nothing is 0/0 unless it is made 0",
    needs="mask params",
)
def padding_is_finite(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    mask[0] = False
    subject.equal(
        np.isfinite(model.forward(ids, mask=mask)), np.ones((*ids.shape, model.vocab_size)), "finite"
    )


@law(
    "Padding may be anywhere in the chunks that are fed to a cache: the logits of real tokens do not change.",
    needs="mask cache",
)
def padding_invariance_with_a_cache(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = draw_padded(subject, draw, model)
    expected = logits_alone(subject, model, ids, mask)
    column = draw("column", subject.columns(1, ids.shape[1]))
    cache = model.new_cache(len(ids), ids.shape[1] + 1)
    first, cache = model.extend(ids[:, :column], cache, mask=mask[:, :column])
    pieces = [first]
    if column < ids.shape[1]:
        pieces.append(model.extend(ids[:, column:], cache, mask=mask[:, column:])[0])
    logits = np.concatenate(pieces, axis=1)
    for r, wanted in enumerate(expected):
        subject.close(logits[r, mask[r]], wanted, f"logits of row {r} without its padding")
