"""What attention sees, read off its weights."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.values import Fit, read_fault, values_at
from tinyxp.doctor.points import kind
from tinyxp.doctor.variant import Variant


def fit_mask(evidence: Evidence, v: Variant, point: str) -> Fit | None:
    """Attention that is right except for the keys that each query sees."""
    scores = evidence.points.get(point.removesuffix("weights") + "scores")
    if kind(point) != "attn.weights" or scores is None:
        return None
    values, t = values_at(evidence, v, point), evidence.batch.ids.shape[1]
    if not values.have_one_shape or values.theirs.shape[-2:] != (t, t):
        return None
    sees = np.any(values.theirs != 0.0, axis=1, keepdims=True)  # (b, 1, t, s)
    x = np.where(sees, scores.astype(np.float64), -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        error = evidence.error(point, np.nan_to_num(e / np.sum(e, axis=-1, keepdims=True)))
    real = evidence.batch.real
    right = np.tri(t, dtype=bool) & real[:, None, None, :]
    queries = real[:, None, :, None]
    if error.is_fault or np.array_equal(sees & queries, right & queries):
        return None
    key, says = _describe(sees, right, t)
    return read_fault(key, f"{{it}} {says}", "let query i see keys 0 to i", point), error


def _describe(sees: np.ndarray, right: np.ndarray, t: int) -> tuple[str, str]:
    """The key of a mask (b, 1, t, t), and the mask in words."""
    query, key = np.arange(t)[:, None], np.arange(t)[None, :]
    for width in range(1, t):
        near = right & (query - key < width)
        if np.array_equal(sees, near):
            return f"window of {width}", f"lets a token see the last {width} tokens only: a sliding window"
        for sink in range(1, 5):
            if np.array_equal(sees, near | (right & (key < sink))):
                says = f"lets a token see only the first {sink} and the last {width} tokens"
                return f"window of {width} and sink", says
    for count in range(1, t):
        if np.array_equal(sees, right & ((key >= count) | (query < count))):
            return f"first {count} keys hidden", f"hides the first {count} tokens from later ones"
        if np.array_equal(sees, right | ((key < count) & (query < count))):
            says = f"lets the first {count} tokens see each other: a prefix without a causal mask"
            return f"prefix of {count}", says
    row, _, i, _ = (int(n) for n in np.argwhere(sees != right)[0])
    seen = np.flatnonzero(sees[row, 0, i]).tolist()
    some = f"{seen[:12]}{'...' if len(seen) > 12 else ''}"
    return "another mask", f"has another mask: in row {row}, query {i} sees keys {some}"
