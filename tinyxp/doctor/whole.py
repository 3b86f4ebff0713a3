"""Causes that concern a side as a whole, looked for before any point is: its dtype, and what went into it."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.faults.tables import likely_front, with_front
from tinyxp.doctor.reference_run import WeightSource, run_reference
from tinyxp.doctor.traces import Batch, Points


def front_token(weights: WeightSource, batch: Batch, trace: Points) -> int | None:
    """The token that a side put in front, where its trace has one column more; None where it has not, or
    where no token fits.
    """
    b, t = batch.ids.shape
    config = weights.config
    if "embed" not in trace:
        logits = trace.get("logits")
        return (
            None if logits is None or logits.shape[:2] != (b, t + 1) else _tried_token(weights, batch, logits)
        )
    x = trace["embed"]
    if x.shape != (b, t + 1, config.d_model):
        return None
    table = weights.read("embed.weight").astype(np.float64)
    first = x[0, 0].astype(np.float64)
    if config.position == "learned":
        first = first - weights.read("pos_embed.weight")[0]
    apart = np.linalg.norm(table - first, axis=1)
    token = int(np.argmin(apart))
    return token if apart[token] <= 1e-2 * float(np.linalg.norm(table[token])) else None


def _tried_token(weights: WeightSource, batch: Batch, logits: np.ndarray) -> int | None:
    """The token whose logits are nearest, which must be near."""
    found: dict[int, float] = {}
    for token in likely_front(weights.config):
        answer: list[np.ndarray] = []

        def tap(name: str, x: np.ndarray, answer: list[np.ndarray] = answer) -> np.ndarray:
            if name == "logits":
                answer.append(x)
            return x

        run_reference(weights, Batch(with_front(batch, token).ids[:1, :1]), tap)
        found[token] = float(np.linalg.norm(answer[0][0, 0] - logits[0, 0]))
    token = min(found, key=found.__getitem__)
    return token if found[token] <= 0.1 * float(np.linalg.norm(logits[0, 0])) else None


def with_column(batch: Batch, trace: Points, token: int) -> tuple[Batch, Points]:
    """The batch with that token, and the trace without points that answer for the ids alone."""
    longer = with_front(batch, token)
    width = longer.ids.shape[1]
    kept = {name: x for name, x in trace.items() if x.shape[2 if x.ndim == 4 else 1] == width}
    return longer, kept
