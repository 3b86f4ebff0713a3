"""References: found by entry point or by capability, without importing what is not needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tinyxp
from tests.reference import libraries
from tinyxp import plugins
from tinyxp.testing import references, subject


@pytest.fixture
def two_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two references of one role, of which one library is installed, and one of another role."""
    entries = {"decoder.not_a_library": None, "decoder.numpy": None, "precision.numpy": None}
    monkeypatch.setattr(plugins, "entries", lambda group: entries)
    monkeypatch.setattr(plugins, "load", lambda group, name: SimpleNamespace(group=group, name=name))


def test_only_installed_libraries_are_references(two_decoders: None) -> None:
    assert references.installed("decoder") == ["decoder.numpy"]
    assert references.reference("decoder").name == "decoder.numpy"
    with pytest.raises(ValueError, match="^role is 'tokenizer'; no implementation of it is installed"):
        references.reference("tokenizer")


def test_the_package_names_its_own_references() -> None:
    names = plugins.entries(plugins.REFERENCES)
    assert names["decoder.transformers"].value == "tinyxp.backends.transformers"
    assert names["precision.mparray"].value == "tinyxp.backends.mparray"


def test_a_backend_is_found_by_what_it_can_do() -> None:
    assert references.find_backend(lambda backend: "cpu" in backend.devices()) is tinyxp.backend("numpy")
    assert references.find_backend(lambda backend: False) is None


@pytest.mark.parametrize("library", libraries("torch", "jax"))
def test_another_library_with_gradients(library: str) -> None:
    other = references.other_differentiating(tinyxp.backend(library))
    assert other is None or (other.has_gradients and other.name != library)


def test_a_subject_lacks_a_reference_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = frozenset({"params", "reference-decoder"})
    monkeypatch.setattr(plugins, "entries", lambda group: {"decoder.not_a_library": None})
    assert subject("numpy").lacks(needs) == "no reference decoder is installed"
    monkeypatch.setattr(plugins, "entries", lambda group: {"decoder.numpy": None})
    assert subject("numpy").lacks(needs) == ""
