"""Fixtures that every test may use, besides ``backend``, which is the plugin's, and the Hypothesis profiles:
``ci`` (the default) and ``long``."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real weights and vocabularies that TINYXP_TEST_DATA names."""
    folder = os.environ.get("TINYXP_TEST_DATA")
    if not folder:
        pytest.skip("TINYXP_TEST_DATA is not set: no real weights to test on")
    return Path(folder)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct in GGUF, which TINYXP_TEST_SMOLLM2 names (``make test`` downloads it)."""
    path = os.environ.get("TINYXP_TEST_SMOLLM2")
    if not path:
        pytest.skip("TINYXP_TEST_SMOLLM2 is not set: no SmolLM2 weights to test on")
    return Path(path)
