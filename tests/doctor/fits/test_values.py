"""The values of both sides at a point."""

from __future__ import annotations

import numpy as np

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.fits.values import read_fault, values_at


def test_the_values_of_both_sides() -> None:
    evidence = evidence_of(LLAMA_SMALL, "scores not scaled")
    point = "blocks.0.attn.scores"
    values = values_at(evidence, evidence.right, point)
    assert values.theirs.dtype == np.float64
    np.testing.assert_allclose(values.theirs, values.right * 8**0.5, rtol=1e-5, atol=1e-5)
    counts = np.broadcast_to(values.counts, values.theirs.shape)
    assert counts[0, 0].tolist() == np.tri(12, dtype=bool).tolist()  # what no query sees is not compared
    assert values.have_one_shape
    assert values.are_finite


def test_shapes_and_numbers_that_cannot_be_compared() -> None:
    evidence = evidence_of(LLAMA_SMALL, "8 heads for 4")
    assert not values_at(evidence, evidence.right, "blocks.0.attn.scores").have_one_shape
    nan = {**evidence.points, "embed": np.full_like(evidence.points["embed"], np.nan)}
    evidence = Evidence(evidence.weights, evidence.batch, nan, "float32")
    assert not values_at(evidence, evidence.right, "embed").are_finite


def test_a_fault_that_is_read_off_is_not_computed() -> None:
    fault = read_fault("key", "{it} errs", "do not", "blocks.1.attn.q")
    assert (fault.points, fault.change) == (("attn.q",), None)
