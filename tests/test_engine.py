"""Engines: found by the backend's name, the plain one for everybody else."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, LLAMA_CONFIG, distance, drawn, libraries
from tinyxp import Backend
from tinyxp.decoding import Decoder
from tinyxp.engine import Engine, engine_backends, engine_of, new_decoder
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


def test_backends_with_engines_are_the_installed_ones_with_cheap_operations_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("torch", "jax"):
        pytest.importorskip(library)
    assert [backend.name for backend in engine_backends()] == ["numpy", "torch", "jax"]
    versions = tinyxp.available_backends() | {"torch": None}
    monkeypatch.setattr("tinyxp.engine.available_backends", lambda: versions)
    assert [backend.name for backend in engine_backends()] == ["numpy", "jax"]


@pytest.mark.parametrize("library", libraries("strict", "dask", "mlx"))
def test_others_have_the_plain_one(library: str) -> None:
    engine = engine_of(tinyxp.backend(library))
    assert type(engine) is Engine
    assert engine.decoder is Decoder
    assert not engine.kernels


def test_a_library_with_views_joins_projections_without_a_word() -> None:
    class Viewing(Backend):
        has_views = True

    assert Engine(Viewing("viewing", np)).kernels == {"project": project}


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


def test_int8_is_a_capability() -> None:
    params = drawn(LLAMA_CONFIG)
    assert not engine_of(params.backend).has_int8
    with pytest.raises(ValueError, match=r"^dtype is 'int8', which numpy has no matrix product for$"):
        engine_of(params.backend).quantize(params)
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        engine_of(params.backend).check_int8()
