"""Engines: found by the backend's name, the plain one for everybody else."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, IDS, LLAMA_CONFIG, distance, drawn, libraries
from tinyxp import Backend, Config, ops
from tinyxp.decoding import Decoder
from tinyxp.engine import Engine, engine_names, engine_of, new_decoder
from tinyxp.joint import project

OWN = libraries("numpy", "torch", "jax")


@pytest.mark.parametrize("library", OWN)
def test_a_library_s_own_engine(library: str) -> None:
    backend = tinyxp.backend(library)
    engine = engine_of(backend)
    assert type(engine) is not Engine
    assert engine.backend is backend
    assert engine is backend.engine
    assert {"linear", "attention", "write_cache"} <= engine.kernels.keys()
    assert set(engine.training_kernels) <= set(engine.kernels)


def test_default_backends_with_engines_are_the_installed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("torch", "jax"):
        pytest.importorskip(library)
    assert engine_names() == ("numpy", "torch", "jax")
    versions = tinyxp.available_backends() | {"torch": None}
    monkeypatch.setattr("tinyxp.engine.available_backends", lambda: versions)
    assert engine_names() == ("numpy", "jax")


@pytest.mark.parametrize("library", libraries("strict", "dask", "mlx"))
def test_others_have_the_plain_one(library: str) -> None:
    engine = engine_of(tinyxp.backend(library))
    assert type(engine) is Engine
    assert engine.decoder is Decoder
    assert not engine.kernels


def test_a_library_with_views_joins_projections_without_a_word() -> None:
    class Viewing(Backend):
        has_views = True

    assert Engine(Viewing("viewing", np)).kernels == {}

    class Fast(Engine):
        kernels = {"silu": ops.silu}  # noqa: RUF012

    assert Fast(Viewing("viewing", np)).kernels == {"project": project, "silu": ops.silu}


def test_the_plain_engine_s_forward_is_forward(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    engine = Engine(backend)
    compiled = engine.compile(params)
    mask = [[False, True, True, True, True]]
    assert distance(compiled(IDS), tinyxp.forward(params, IDS)) <= 1e-6
    assert distance(compiled(IDS, mask=mask), tinyxp.forward(params, IDS, mask=mask)) <= 1e-6
    assert distance(backend.compile(params)(IDS), tinyxp.forward(params, IDS)) <= 1e-5


def test_a_decoder_starts_empty_and_answers_with_the_last_logits(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    decoder = new_decoder(params, 1, 5)
    assert decoder.used == 0
    assert distance(decoder(np.asarray(IDS)), tinyxp.forward(drawn(LLAMA_CONFIG), IDS)[:, -1]) <= 1e-5
    assert decoder.used == len(IDS[0])


@pytest.mark.parametrize("library", OWN)
@pytest.mark.parametrize("config", [LLAMA_CONFIG, GPT2_CONFIG], ids=["llama", "gpt2"])
def test_prepared_parameters_still_serve_the_public_calls(library: str, config: Config) -> None:
    params = drawn(config).to(tinyxp.backend(library).xp)
    prepared = engine_of(params.backend).prepare(params)
    assert distance(tinyxp.forward(prepared, IDS), tinyxp.forward(drawn(config), IDS)) <= 1e-5
    assert abs(float(tinyxp.loss(prepared, IDS, IDS)) - float(tinyxp.loss(drawn(config), IDS, IDS))) <= 1e-5
    logits, _ = tinyxp.extend(prepared, IDS, tinyxp.new_cache(prepared, 1, 5), last=True)
    assert distance(logits, tinyxp.forward(drawn(config), IDS)[:, -1:]) <= 1e-5
    assert tinyxp.trace(prepared, IDS).keys() == tinyxp.trace(drawn(config), IDS).keys()
    assert prepared.get("head.bias") is None
    assert "head.bias" not in prepared


def test_int8_is_a_capability() -> None:
    params = drawn(LLAMA_CONFIG)
    assert not engine_of(params.backend).has_int8
    with pytest.raises(ValueError, match=r"^dtype is 'int8', which numpy has no matrix product for; use"):
        engine_of(params.backend).quantize(params)
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        engine_of(params.backend).check_int8()
