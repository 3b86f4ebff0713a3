"""The search as a whole."""

from __future__ import annotations

import numpy as np

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.search import MOST, explain


def test_nothing_is_found_in_a_right_side() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    assert explain(evidence, seconds=600.0) == ((), evidence.right, False)


def test_faults_are_found_one_after_another() -> None:
    keys = ["scores not scaled", "gelu for silu", "logits as capped at 30"]
    findings, variant, ran_out = explain(evidence_of(LLAMA_SMALL, *keys), seconds=600.0)
    assert [fault.key for finding in findings for fault in finding.faults] == keys
    assert len(variant.changes) == 3
    assert not ran_out


def test_without_time_nothing_is_tried() -> None:
    findings, _, ran_out = explain(evidence_of(LLAMA_SMALL, "gelu for silu", only="logits"), seconds=0.0)
    assert ran_out
    assert [finding.faults for finding in findings] == [()]


def test_faults_of_padding_need_padding() -> None:
    findings, _, _ = explain(evidence_of(LLAMA_SMALL, "positions off by +1"), seconds=600.0)
    names = {f.key for finding in findings for f in (*finding.faults, *finding.alike)}
    assert "positions not counted from the mask" not in names


def test_the_number_of_points_that_are_explained_is_limited() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    points = {name: np.sin(7 * x) for name, x in evidence.points.items()}
    findings, _, _ = explain(Evidence(evidence.weights, evidence.batch, points, "float32"), seconds=60.0)
    assert 0 < len(findings) <= MOST


def test_what_is_nan_is_explained_once() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    later = ("blocks.1", "final_norm", "logits")
    points = {n: x * np.nan if n.startswith(later) else x for n, x in evidence.points.items()}
    findings, _, _ = explain(Evidence(evidence.weights, evidence.batch, points, "float32"), seconds=60.0)
    assert len(findings) == 1
