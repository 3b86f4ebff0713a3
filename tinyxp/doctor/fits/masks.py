"""What attention sees, read off its weights."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.choices import F
from tinyxp.doctor.fits.values import Fit, given, values
from tinyxp.doctor.held import Held
from tinyxp.doctor.points import kind
from tinyxp.doctor.variant import Variant


def visibility(held: Held, v: Variant, point: str) -> Fit | None:
    """Attention that is right but for what each query sees, and what that is."""
    scores = held.trace.get(point.removesuffix("weights") + "scores")
    if kind(point) != "attn.weights" or scores is None:
        return None
    found, right, _ = values(held, v, point)
    t = held.batch.ids.shape[1]
    if found.shape != right.shape or found.shape[-2:] != (t, t):
        return None
    sees = np.any(found != 0.0, axis=1, keepdims=True)  # (b, 1, t, s)
    x = np.where(sees, scores.astype(np.float64), -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        error = held.error(point, np.nan_to_num(e / np.sum(e, axis=-1, keepdims=True)))
    usual = np.tri(t, dtype=bool) & held.batch.real[:, None, None, :]
    if error.excess > 1.0 or np.array_equal(
        sees & held.batch.real[:, None, :, None], usual & held.batch.real[:, None, :, None]
    ):
        return None
    key, says = _pattern(sees, usual, t)
    return given(key, f"{{it}} {says}", "let query i see keys 0 to i", (point,)), error


def _pattern(sees: F, usual: F, t: int) -> tuple[str, str]:
    """The key of what is seen, and its description."""
    query, key = np.arange(t)[:, None], np.arange(t)[None, :]
    for width in range(1, t):
        near = usual & (query - key < width)
        if np.array_equal(sees, near):
            return f"window of {width}", f"lets a token see the last {width} tokens only: a sliding window"
        for sink in range(1, 5):
            if np.array_equal(sees, near | (usual & (key < sink))):
                return (
                    f"window of {width} and sink",
                    f"sees the first {sink} and the last {width} tokens only",
                )
    for count in range(1, t):
        if np.array_equal(sees, usual & ((key >= count) | (query < count))):
            return f"first {count} keys hidden", f"hides the first {count} tokens from later ones"
        if np.array_equal(sees, usual | ((key < count) & (usual.any() & (query < count)))):
            return (
                f"prefix of {count}",
                f"lets the first {count} tokens see each other: a prefix without a mask",
            )
    row, _, i, _ = (int(n) for n in np.argwhere(sees != usual)[0])
    seen = np.flatnonzero(sees[row, 0, i]).tolist()
    return (
        "another mask",
        f"has another mask: in row {row}, query {i} sees keys {seen[:12]}{'...' if len(seen) > 12 else ''}",
    )
