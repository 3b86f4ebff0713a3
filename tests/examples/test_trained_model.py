"""The model and the text that the examples take apart."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import tinyxp


@pytest.fixture
def trained_model(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    return importlib.import_module("trained_model")


def test_stories_are_where_the_data_is(trained_model, test_data):
    name, params, ids = trained_model.trained_model(quick=True)
    assert name.startswith("stories260k")
    assert tinyxp.count_parameters(params.config)["total"] == 260_032
    assert ids.shape == (2, 2049)
    assert [int(row.argmax()) for row in ids == 1] == [0, 256]  # each row begins elsewhere in its story


def test_without_the_data_it_is_trained_here(trained_model, monkeypatch):
    monkeypatch.delenv("TINYXP_TEST_DATA", raising=False)
    monkeypatch.setattr(trained_model, "from_pages", lambda steps, rows: (steps, rows))
    assert trained_model.trained_model(quick=True) == (80, 2)
    assert trained_model.trained_model(quick=False) == (500, 8)


def test_training_on_the_pages(trained_model):
    pytest.importorskip("torch")
    _, params, ids = trained_model.from_pages(steps=30, rows=2)
    assert params.xp is tinyxp.backend("numpy").xp
    assert ids.shape == (2, 257)
    assert trained_model.token_losses(params, ids[:, :65]).mean() < 0.75 * np.log(256)


def test_token_losses_are_those_of_loss(trained_model):
    params = tinyxp.init(tinyxp.Config(), seed=3)
    ids = np.random.default_rng(0).integers(0, 128, (2, 9))
    losses = trained_model.token_losses(params, ids)
    assert losses.shape == (2, 8)
    assert losses.mean() == pytest.approx(float(tinyxp.loss(params, ids[:, :-1], ids[:, 1:])), rel=1e-6)
