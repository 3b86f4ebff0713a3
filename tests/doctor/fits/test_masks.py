"""What attention sees, read off its weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.masks import fit_mask

QUERY, KEY = np.arange(12)[:, None], np.arange(12)[None, :]
CAUSAL = KEY <= QUERY
POINT = "blocks.0.attn.weights"
MASKS = {
    "window of 4": CAUSAL & (QUERY - KEY < 4),
    "window of 3 and sink": CAUSAL & ((QUERY - KEY < 3) | (KEY < 2)),
    "first 2 keys hidden": CAUSAL & ((KEY >= 2) | (QUERY < 2)),
    "prefix of 5": CAUSAL | ((KEY < 5) & (QUERY < 5)),
    "another mask": CAUSAL & ~((QUERY == 7) & (KEY == 3)),
}


def side(mask: np.ndarray) -> Evidence:
    evidence = evidence_of(LLAMA_SMALL)
    x = np.where(mask, evidence.points["blocks.0.attn.scores"].astype(np.float64), -1e300)
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    weights = (e / np.sum(e, axis=-1, keepdims=True)).astype(np.float32)
    return Evidence(evidence.weights, evidence.batch, {**evidence.points, POINT: weights}, "float32")


@pytest.mark.parametrize("key", MASKS)
def test_masks(key: str) -> None:
    evidence = side(MASKS[key])
    fit = fit_mask(evidence, evidence.right, POINT)
    assert fit is not None
    assert (fit[0].key, fit[1].is_fault) == (key, False)
    if key == "another mask":
        assert "in row 0, query 7 sees keys [0, 1, 2, 4, 5, 6, 7]" in fit[0].says


def test_the_right_mask_and_other_weights_are_no_fit() -> None:
    right = side(CAUSAL)
    assert fit_mask(right, right.right, POINT) is None
    other = {**right.points, POINT: right.points[POINT] ** 2}
    evidence = Evidence(right.weights, right.batch, other, "float32")
    assert fit_mask(evidence, evidence.right, POINT) is None
    assert fit_mask(right, right.right, "blocks.0.attn.scores") is None
