"""Numbers about attention and positions in a forward pass, computed with the model's own functions.

Results are NumPy arrays in float64, of one sequence, without the batch axis. s is the number of shown
positions; other letters as in ``model.py``.
"""

from __future__ import annotations

import numpy as np

from tinyxp import ops
from tinyxp.html.forward_pass import ForwardPass
from tinyxp.rope import rope_frequencies, rotation

MAX_PAIRS = 6
"""How many rotary pairs are shown at most."""
MIN_ANGLES = 256
"""For how many positions angles are computed, up to the model's limit; for more if the sequence is longer."""


def attention_weights(run: ForwardPass, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the attention weights of a block with and without the causal mask, and how much looks ahead.

    The weights (h, s, s); softmax over all scores (h, s, s); and the share of the latter that is on later
    tokens, as the mean over all queries (h,).
    """
    xp, first, t = run.params.xp, run.shown.start, len(run.ids)
    scores = run.points[f"blocks.{layer}.attn.scores"]
    unmasked = run.host(ops.softmax(ops.widen(scores, xp=xp), xp=xp))
    future = (unmasked * np.triu(np.ones((t, t)), 1)).sum(axis=(1, 2)) / t
    weights = run.point(f"blocks.{layer}.attn.weights")
    return weights[:, first:, first:], unmasked[:, first:, first:], future


def rotary_angles(run: ForwardPass) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return up to six rotary pairs, fastest first: indices (k,), frequencies (k,) and angles (k, p, 2).

    An angle is given by its cosine and sine, at each position from 0 on.
    """
    params, config = run.params, run.params.config
    pairs = config.head_dim // 2
    chosen = sorted({round(x) for x in np.linspace(0, pairs - 1, MAX_PAIRS)})
    count = max(min(MIN_ANGLES, config.max_seq_len), len(run.ids))
    positions = params.backend.from_numpy(np.arange(count)[None], device=params.device)
    tables = rotation(config, positions, params.dtype, xp=params.xp, device=params.device)
    assert tables is not None
    cos, sin = (run.host(x)[0].T[chosen] for x in tables)
    return chosen, np.asarray(rope_frequencies(config))[chosen], np.stack([cos, sin], axis=-1)


def position_similarity(run: ForwardPass) -> np.ndarray:
    """Return the cosine similarity of the rows of the position table (s, s)."""
    table = run.params.backend.to_numpy(run.params["pos_embed.weight"])[: len(run.ids)].astype(np.float64)
    rows = table[run.shown.start :]
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    rows = rows / np.where(length > 0.0, length, 1.0)
    return np.clip(rows @ rows.T, -1.0, 1.0)
