"""transformers as a reference: its models with our parameters, and its logits processors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tests.doctor.models import CONFIGS, IDS, llama
from tests.reference import drawn
from tinyxp import plugins
from tinyxp.sampling import probabilities

pytest.importorskip("transformers")

from tinyxp.backends import transformers as theirs


def test_it_is_found_as_a_reference() -> None:
    assert plugins.load(plugins.REFERENCES, "decoder.transformers") is theirs


@pytest.mark.parametrize("family", CONFIGS)
def test_its_model_computes_our_logits(family: str, tmp_path: Path) -> None:
    params = drawn(CONFIGS[family])
    expected = tinyxp.forward(params, IDS)
    network = theirs.model(params)
    np.testing.assert_allclose(theirs.logits(network, IDS), expected, rtol=1e-4, atol=1e-4)
    theirs.save(network, tmp_path)
    loaded = theirs.load(tmp_path)
    np.testing.assert_allclose(theirs.logits(loaded, IDS), expected, rtol=1e-4, atol=1e-4)
    assert theirs.count(params.config) == tinyxp.count_parameters(params.config)["total"]


def test_a_mask_and_positions_are_passed_on() -> None:
    network = theirs.model(llama())
    mask = np.arange(12) >= np.array([[0], [4]])
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    found = theirs.logits(network, IDS, attention_mask=mask.astype(int), position_ids=positions)
    expected = tinyxp.forward(llama(), IDS, mask=mask)
    np.testing.assert_allclose(found[mask], expected[mask], rtol=1e-4, atol=1e-4)


def test_a_folder_that_lacks_a_weight_is_noticed(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tinyxp.save(llama(), tmp_path)
    arrays = safetensors.load_file(tmp_path / "model.safetensors")
    del arrays["model.norm.weight"]
    safetensors.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AssertionError, match=r"transformers reports .*model\.norm\.weight"):
        theirs.load(tmp_path)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.6}])
def test_probabilities_without_ties_are_ours(settings: dict[str, float]) -> None:
    logits = np.random.default_rng(0).normal(size=(3, 20))
    found = theirs.processors(**settings)(logits)  # type: ignore[arg-type]
    expected = probabilities(logits, xp=np, **{"temperature": 1.0} | settings)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0.0)


def test_equal_tokens_are_kept_otherwise() -> None:
    """As the docstring says."""
    logits = np.array([[1.0, 0.0, 0.0, -1.0]])
    assert np.count_nonzero(theirs.processors(top_k=2)(logits)) == 3
    assert np.count_nonzero(probabilities(logits, temperature=1.0, top_k=2, xp=np)) == 2
    mass = np.log(np.array([[0.5, 0.3, 0.15, 0.05]]))
    assert np.count_nonzero(theirs.processors(top_p=0.8)(mass)) == 3
    assert np.count_nonzero(probabilities(mass, temperature=1.0, top_p=0.8, xp=np)) == 2
