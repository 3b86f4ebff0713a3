"""JAX's engine: a compiled forward that still checks its ids, and parameters that are stacked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, LLAMA_CONFIG, distance, drawn
from tinyxp.engine import engine_of

jax = pytest.importorskip("jax")

ENGINE = engine_of(tinyxp.backend("jax"))


@pytest.mark.parametrize(
    "make", [np.ndarray.tolist, np.asarray, jax.numpy.asarray], ids=["list", "numpy", "jax"]
)
def test_compiled_forward_checks_ids_of_every_kind(make: Any) -> None:
    forward = ENGINE.compile(drawn(LLAMA_CONFIG).to(jax.numpy))
    ids = np.asarray(IDS)
    assert distance(forward(make(ids)), tinyxp.forward(drawn(LLAMA_CONFIG), IDS)) <= 1e-5
    with pytest.raises(ValueError, match="ids holds 14; it must be .* below the vocabulary size 11"):
        forward(make(ids + 9))


def test_prepared_parameters_are_stacked_and_keep_their_names() -> None:
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    prepared = ENGINE.prepare(params)
    assert list(prepared) == list(params)
    assert all(np.array_equal(prepared[name], params[name]) for name in params)
    assert ENGINE.prepare(prepared)._arrays is prepared._arrays


def test_training_uses_the_fused_loss_alone() -> None:
    assert set(ENGINE.training_kernels) == {"linear_cross_entropy"}
    assert not ENGINE.has_int8
