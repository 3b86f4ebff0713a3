"""The machine: its processor, its load, and the versions of what is measured."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest

import tinyxp
from tinyxp.bench.machine import describe_machine


def test_versions_are_those_of_the_libraries() -> None:
    facts = describe_machine(("numpy",), 1)
    assert facts["versions"] == {
        "python": platform.python_version(),
        "tinyxp": tinyxp.__version__,
        "numpy": np.__version__,
    }
    assert facts["threads"] == 1
    assert facts["cores"] >= 1
    assert json.loads(json.dumps(facts)) == facts


def test_an_alias_is_named_by_its_library() -> None:
    pytest.importorskip("array_api_strict")
    assert "array_api_strict" in describe_machine(("strict",), None)["versions"]


def test_the_limit_of_threads_in_the_environment_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert describe_machine((), None)["OMP_NUM_THREADS"] == "3"
