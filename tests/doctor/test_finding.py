"""Findings, and how they are put together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import fault_of
from tinyxp.doctor.distance import Distance
from tinyxp.doctor.finding import Finding, add_finding
from tinyxp.doctor.rounding import Error


def error(rms: float) -> Error:
    distance = Distance(rms, rms, (), 1.0, 1.0)
    return Error(distance, distance, 2.0)


def finding(key: str, *blocks: int, before: float = 1.0, after: float = 0.0) -> Finding:
    points = tuple(f"blocks.{i}.mlp.hidden" for i in blocks or (0, 1, 2))
    faults = (fault_of(LLAMA_SMALL, key),) if key else ()
    return Finding(points[0], faults, error(before), error(after), points, blocks or None)


@pytest.mark.parametrize(
    ("before", "after", "closed"),
    [(1.0, 0.25, 0.75), (1.0, 2.0, 0.0), (0.0, 1.0, 1.0), (1.0, np.inf, 0.0), (1.0, np.nan, 0.0)],
)
def test_the_part_of_the_error_that_is_explained(before: float, after: float, closed: float) -> None:
    assert finding("gelu for silu", before=before, after=after).closed == closed


def test_one_fault_in_more_blocks_is_one_finding() -> None:
    findings = add_finding((finding("gelu for silu", 0),), finding("gelu for silu", 2), 3)
    (both,) = findings
    assert both.blocks == (0, 2)
    assert both.points == ("blocks.0.mlp.hidden", "blocks.2.mlp.hidden")
    (all_blocks,) = add_finding(findings, finding("gelu for silu", 1), 3)
    assert all_blocks.blocks is None
    assert findings[0].blocks == (0, 2)  # nothing is changed in place


def test_other_faults_and_unknown_ones_are_findings_of_their_own() -> None:
    first = (finding("gelu for silu", 0),)
    assert len(add_finding(first, finding("relu for silu", 0), 3)) == 2
    unknown = add_finding((finding("", 0),), finding("", 1), 3)
    assert len(unknown) == 2
