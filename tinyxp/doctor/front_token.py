"""A token that a side puts in front of the ids, found by the column that it adds."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.faults.tables import likely_front_tokens, put_in_front
from tinyxp.doctor.reference_run import WeightSource, run_reference
from tinyxp.doctor.traces import Batch, Points


def find_front_token(weights: WeightSource, batch: Batch, points: Points) -> int | None:
    """The token that a side puts in front; None if its trace has no further column, or if no token fits."""
    b, t = batch.ids.shape
    config = weights.config
    if "embed" not in points:
        logits = points.get("logits")
        has_column = logits is not None and logits.shape[:2] == (b, t + 1)
        return _token_of_logits(weights, batch, logits) if has_column and logits is not None else None
    x = points["embed"]
    if x.shape != (b, t + 1, config.d_model):
        return None
    table = weights.read("embed.weight").astype(np.float64)
    first = x[0, 0].astype(np.float64)
    if config.position == "learned":
        first = first - weights.read("pos_embed.weight")[0]
    distances = np.linalg.norm(table - first, axis=1)
    token = int(np.argmin(distances))
    return token if distances[token] <= 1e-2 * float(np.linalg.norm(table[token])) else None


def _token_of_logits(weights: WeightSource, batch: Batch, logits: np.ndarray) -> int | None:
    """The token with the nearest logits, if they are near."""
    distances: dict[int, float] = {}
    for token in likely_front_tokens(weights.config):
        answer: list[np.ndarray] = []

        def tap(name: str, x: np.ndarray, answer: list[np.ndarray] = answer) -> np.ndarray:
            if name == "logits":
                answer.append(x)
            return x

        run_reference(weights, Batch(put_in_front(batch, token).ids[:1, :1]), tap)
        distances[token] = float(np.linalg.norm(answer[0][0, 0] - logits[0, 0]))
    token = min(distances, key=distances.__getitem__)
    return token if distances[token] <= 0.1 * float(np.linalg.norm(logits[0, 0])) else None


def with_front_token(batch: Batch, points: Points, token: int) -> tuple[Batch, Points]:
    """The batch with that token in front, and the trace without the points that have no column for it."""
    longer = put_in_front(batch, token)
    width = longer.ids.shape[1]
    kept = {name: x for name, x in points.items() if x.shape[2 if x.ndim == 4 else 1] == width}
    return longer, kept
