"""Laws of padding: a mask makes a padded row the row itself, wherever its padding stands."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.law import Draw, law
from tinyxp.testing.strategies import padded_batches
from tinyxp.testing.subject import Subject

SOURCE = "Hugging Face's attention_mask and the position_ids that its generate counts from it"


def padded(subject: Subject, draw: Draw, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Drawn ids and mask (b, t)."""
    ids, mask = draw("batch", padded_batches(model, **subject.shape((1, 3), (1, 8))))
    return np.asarray(ids), np.asarray(mask)


def alone(subject: Subject, model: Any, ids: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """Each row's logits (length, n), computed without its padding.

    Where a new shape is dear the row's tokens stand in front and later ones follow, which causality allows.
    """
    found = []
    for row, real in zip(ids, mask, strict=True):
        if subject.pooled:
            front = np.argsort(~real, kind="stable")
            found.append(model.forward(np.stack([row[front]] * len(ids)))[0, : real.sum()])
        else:
            found.append(model.forward(row[None, real])[0])
    return found


@law(
    "A padded row has the logits of the row alone, with padding on the left, on the right or on both sides.",
    of="model",
    region="padding",
    source=SOURCE,
    needs="mask",
)
def padding_invariance(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    logits = model.forward(ids, mask=mask)
    for r, expected in enumerate(alone(subject, model, ids, mask)):
        subject.close(logits[r, mask[r]], expected, f"logits of row {r} without its padding")


@law(
    "What ids stand on padding moves nothing.",
    of="model",
    region="padding",
    source=SOURCE,
    needs="mask",
)
def padding_is_unseen(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    step = draw("step", st.integers(1, max(model.vocab_size - 1, 1)))
    others = np.where(mask, ids, (ids + step) % model.vocab_size)
    found, expected = model.forward(others, mask=mask), model.forward(ids, mask=mask)
    subject.close(found[mask], expected[mask], "logits of real tokens")


@law(
    "A mask of ones is no mask.",
    of="model",
    region="padding",
    source=SOURCE,
    needs="mask",
)
def a_full_mask_is_none(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    subject.close(model.forward(ids, mask=np.ones(ids.shape, dtype=bool)), model.forward(ids), "logits")


@law(
    "Rows that are all padding, and the padding of others, give finite numbers: none is NaN.",
    of="model",
    region="padding",
    source="a softmax over nothing is 0/0 unless it is made 0",
    needs="mask params",
)
def padding_is_finite(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    mask[0] = False
    subject.equal(
        np.isfinite(model.forward(ids, mask=mask)), np.ones((*ids.shape, model.vocab_size)), "finite"
    )


@law(
    "Padding may stand anywhere in the chunks that are fed to a cache: the logits of real tokens stay.",
    of="model",
    region="padding",
    source=SOURCE,
    needs="mask cache",
)
def padding_invariance_with_a_cache(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids, mask = padded(subject, draw, model)
    expected = alone(subject, model, ids, mask)
    column = draw("column", subject.columns(1, ids.shape[1]))
    cache = model.new_cache(len(ids), ids.shape[1] + 1)
    first, cache = model.extend(ids[:, :column], cache, mask=mask[:, :column])
    pieces = [first]
    if column < ids.shape[1]:
        pieces.append(model.extend(ids[:, column:], cache, mask=mask[:, column:])[0])
    logits = np.concatenate(pieces, axis=1)
    for r, wanted in enumerate(expected):
        subject.close(logits[r, mask[r]], wanted, f"logits of row {r} without its padding")
