"""The next tokens of both sides: the first that differs, and whether it is a tie."""

from __future__ import annotations

import numpy as np

import tinyxp
from tinyxp.doctor.points import Batch
from tinyxp.doctor.sides import Model, Side
from tinyxp.doctor.verdicts import Row, Token


def continued(side: Side, batch: Batch, count: int) -> Batch:
    """The batch with ``count`` greedy tokens of a side behind each row."""
    if batch.mask is not None and not batch.mask[:, -1].all():
        raise ValueError("generate goes on from the last column, which the mask says is padding in some row")
    if isinstance(side, Model):
        new = tinyxp.generate(side.params, batch.ids, count, mask=batch.mask)
        ids = np.concatenate([batch.ids, side.backend.to_numpy(new)], axis=1).astype(np.int64)
        return Batch(ids, _longer(batch.mask, count))
    if side.batch is not None:
        raise ValueError(f"{side.name} is a recorded trace, which cannot generate")
    for _ in range(count):
        logits = side.trace(batch).get("logits")
        if logits is None:
            raise ValueError(f"{side.name} gave no logits, without which it cannot generate")
        ids = np.concatenate([batch.ids, np.argmax(logits[:, -1:], axis=-1)], axis=1)
        batch = Batch(ids, _longer(batch.mask, 1))
    return batch


def _longer(mask: np.ndarray | None, count: int) -> np.ndarray | None:
    return None if mask is None else np.concatenate([mask, np.ones((len(mask), count), bool)], axis=1)


def first_token(row: Row, a: np.ndarray, b: np.ndarray, batch: Batch) -> tuple[Token | None, int]:
    """The first (row by row) real position where the likeliest tokens differ, and how many were compared.

    It is a tie where the margins on both sides are no larger than what rounding may move two logits by.
    """
    best_a, best_b = np.argmax(a, axis=-1), np.argmax(b, axis=-1)
    differ = np.argwhere((best_a != best_b) & batch.real)
    count = int(batch.real.sum())
    if not len(differ):
        return None, count
    r, p = (int(i) for i in differ[0])
    i, j = int(best_a[r, p]), int(best_b[r, p])
    margin_a, margin_b = float(a[r, p, i] - a[r, p, j]), float(b[r, p, j] - b[r, p, i])
    return Token(r, p, i, j, margin_a, margin_b, max(margin_a, margin_b) <= row.moved), count
