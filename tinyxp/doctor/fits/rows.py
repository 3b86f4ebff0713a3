"""Rows of the embedding, or of the positions, read off the sums that were looked up."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.distance import Distance
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.values import Fit, read_fault, values_at
from tinyxp.doctor.rounding import Error
from tinyxp.doctor.variant import Variant

_NONE = Distance(0.0, 0.0, (), 0.0, 0.0)
EXACT = Error(_NONE, _NONE, 0.0)
"""The error of a look-up that fits."""
ZEROS = -1
"""In place of the number of a row: no row, but zeros."""


def fit_rows(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """Tokens, or positions, that get the rows of others."""
    if point != "embed":
        return None
    values = values_at(evidence, v, point)
    if not values.have_one_shape:
        return None
    theirs, right, _ = values
    real, ids = evidence.batch.real, evidence.batch.ids
    wrong = (np.max(np.abs(theirs - right), axis=-1) > 1e-4 * np.max(np.abs(right))) & real
    if not wrong.any():
        return None
    positions = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    tokens = evidence.weights.read("embed.weight")
    learned = evidence.weights.config.position == "learned"
    table = evidence.weights.read("pos_embed.weight") if learned else None
    rows = _nearest((theirs - (0.0 if table is None else table[positions]))[wrong], tokens)
    if rows is not None and not np.any(rows == ids[wrong]):
        pairs = dict(zip(ids[wrong].tolist(), rows.tolist(), strict=True))
        says, key = _describe("token", pairs, len(tokens), everywhere=not (~wrong & real).any())
        return read_fault(key, f"{{it}} {says}", "align the rows with the tokenizer's ids", point), EXACT
    rows = None if table is None else _nearest((theirs - tokens[ids])[wrong], table)
    if rows is not None and table is not None:
        pairs = dict(zip(positions[wrong].tolist(), rows.tolist(), strict=True))
        says, key = _describe("position", pairs, len(table), everywhere=False)
        return read_fault(key, f"{{it}} {says}", "add row p of the table at position p", point), EXACT
    return None


def _nearest(vectors: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The row of a table that each vector is; None if one is no row."""
    wide = table.astype(np.float64)
    scale = float(np.max(np.abs(wide)))
    rows = []
    for x in vectors:
        if np.max(np.abs(x)) <= 1e-5 * scale:
            rows.append(ZEROS)
            continue
        distances = np.max(np.abs(wide - x), axis=1)
        row = int(np.argmin(distances))
        if not distances[row] <= 1e-4 * scale:
            return None
        rows.append(row)
    return np.array(rows)


def _describe(what: str, pairs: dict[int, int], n: int, *, everywhere: bool) -> tuple[str, str]:
    """How rows were moved in words, and the key."""
    if all(row == ZEROS for row in pairs.values()):
        some = ", ".join(map(str, list(pairs)[:6]))
        return f"looks up zeros for {what} {some}", f"{what} rows zeroed"
    steps = {(row - i) % n for i, row in pairs.items()}
    if len(steps) == 1 and (len(pairs) > 1 or everywhere):
        step = next(iter(steps))
        step = step - n if step > n // 2 else step
        return f"looks up row n {step:+d} for {what} n", f"{what} rows shifted by {-step:+d}"
    some = "; ".join(f"{what} {i} gets row {row}" for i, row in list(pairs.items())[:4])
    return f"looks up other rows: {some}", f"{what} rows moved"
