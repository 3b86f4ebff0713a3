"""PyTorch's engine: nothing of it keeps a graph."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, LLAMA_CONFIG, distance, drawn
from tinyxp.engine import engine_of, new_decoder

torch = pytest.importorskip("torch")

BACKEND = tinyxp.backend("torch")


def test_compiled_logits_keep_no_graph() -> None:
    params = drawn(LLAMA_CONFIG).to(torch)
    tracked = params.replace({name: x.clone().requires_grad_() for name, x in params.items()})
    logits = engine_of(BACKEND).compile(tracked)(IDS)
    assert not logits.requires_grad
    assert distance(logits, tinyxp.forward(drawn(LLAMA_CONFIG), IDS)) <= 1e-5


def test_decoding_keeps_no_graph() -> None:
    params = drawn(LLAMA_CONFIG).to(torch)
    tracked = params.replace({name: x.clone().requires_grad_() for name, x in params.items()})
    decoder = new_decoder(tracked, 1, 8)
    decoder(np.asarray(IDS))
    assert not any(x.requires_grad for x in decoder.cache.keys)


def test_every_kernel_but_those_of_the_cache_has_gradients() -> None:
    engine = engine_of(BACKEND)
    assert engine.has_int8
    assert set(engine.kernels) - set(engine.training_kernels) == {"project"}
    assert "softmax" in engine.references
