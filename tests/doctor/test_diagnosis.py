"""The result of a diagnosis."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from tests.doctor.cases import case_of
from tests.doctor.models import llama, port
from tinyxp.doctor.diagnosis import Cause, Confidence, Diagnosis

COMPARISON = case_of(llama(), port(llama())).comparison
CAUSE = Cause(("dropout",), "B errs", "do not", "logits", ("logits",), Confidence.LIKELY)


def test_it_is_explained_if_every_point_has_a_cause() -> None:
    unknown = replace(CAUSE, keys=())
    assert not Diagnosis(COMPARISON).explained
    assert Diagnosis(COMPARISON, (CAUSE,)).explained
    assert not Diagnosis(COMPARISON, (CAUSE, unknown)).explained


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Diagnosis(COMPARISON).proof = "none"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        CAUSE.confidence = Confidence.PROVED  # type: ignore[misc]


def test_a_confidence_is_a_word() -> None:
    assert [str(each) for each in Confidence] == ["proved", "certain", "likely", "unknown"]
    assert json.dumps(Confidence.PROVED) == '"proved"'
