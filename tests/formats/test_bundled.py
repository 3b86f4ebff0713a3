"""The model that comes with the package is found by its name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyxp.formats.bundled import BUNDLED_MODELS, DEFAULT_MODEL, find_bundled


@pytest.mark.parametrize("name", BUNDLED_MODELS)
def test_bundled_models_have_their_files(name: str) -> None:
    folder = find_bundled(name)
    assert folder is not None
    assert {"config.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert find_bundled(Path(name)) == folder


def test_the_default_is_bundled_and_others_are_not() -> None:
    assert DEFAULT_MODEL == "holmes"
    assert DEFAULT_MODEL in BUNDLED_MODELS
    for name in ("gpt2", "./holmes", "Holmes", ""):
        assert find_bundled(name) is None
