"""The next tokens of both sides: the first that differs, and whether it is a tie."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.traces import Batch
from tinyxp.doctor.verdicts import Row, Token


def compare_tokens(row: Row, a: np.ndarray, b: np.ndarray, batch: Batch) -> tuple[Token | None, int]:
    """Return the first real position, row by row, whose likeliest tokens differ, and how many were compared.

    It is a tie if the margins on both sides are at most what rounding may move two logits (``row.moved``).
    """
    best_a, best_b = np.argmax(a, axis=-1), np.argmax(b, axis=-1)
    different = np.argwhere((best_a != best_b) & batch.real)
    count = int(batch.real.sum())
    if not len(different):
        return None, count
    r, p = (int(i) for i in different[0])
    i, j = int(best_a[r, p]), int(best_b[r, p])
    margin_a, margin_b = float(a[r, p, i] - a[r, p, j]), float(b[r, p, j] - b[r, p, i])
    return Token(r, p, i, j, margin_a, margin_b, max(margin_a, margin_b) <= row.moved), count
