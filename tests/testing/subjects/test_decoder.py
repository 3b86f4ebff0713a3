"""tinyxp's decoder as a subject: NumPy goes in, NumPy comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import libraries
from tinyxp import Config
from tinyxp.testing import subject
from tinyxp.testing.strategies import random_arrays
from tinyxp.testing.subjects.decoder import POOL, Model

CONFIG = POOL[0]
IDS = [[1, 2, 0], [3, 3, 1]]


def model(library: str = "numpy", config: Config = CONFIG) -> Model:
    return subject(library).build(config, random_arrays(config, 1))


@pytest.mark.parametrize("library", libraries("numpy", "torch", "strict"))
def test_a_model_computes_what_tinyxp_computes(library: str) -> None:
    ours = tinyxp.Params(random_arrays(CONFIG, 1), CONFIG)
    theirs = model(library)
    with theirs.subject.active():
        np.testing.assert_allclose(theirs.forward(IDS), tinyxp.forward(ours, IDS), rtol=1e-12)
        np.testing.assert_allclose(theirs.loss(IDS, IDS), tinyxp.loss(ours, IDS, IDS), rtol=1e-12)
        assert theirs.generate(IDS, 2).tolist() == tinyxp.generate(ours, IDS, 2).tolist()


def test_arrays_are_new_and_of_the_right_dtype() -> None:
    numpy = subject("numpy", dtype="float32")
    x, ids = np.ones(2), np.arange(3, dtype=np.int8)
    assert numpy.array(x).dtype == "float32"
    assert not np.shares_memory(numpy.array(x, "float64"), x)
    assert numpy.array(ids).dtype == numpy.backend.index_dtype
    assert numpy.array(3.0) == 3.0
    nested = numpy.host({"a": (x, [ids])})
    assert nested["a"][0] is x
    assert nested["a"][1][0] is ids


def test_but_replaces_arrays_and_drops_those_that_the_config_lacks() -> None:
    untied = model()
    tied = untied.but(
        config=replace(CONFIG, tie_embeddings=True), **{"embed.weight": untied.arrays["head.weight"]}
    )
    assert "head.weight" not in tied.arrays
    np.testing.assert_array_equal(tied.arrays["embed.weight"], untied.arrays["head.weight"])


def test_kernels_replace_operations() -> None:
    fast = subject("numpy+kernels")
    assert fast.kernels
    for name, kernel in fast.kernels.items():
        assert getattr(fast.ops, name) is kernel


def test_the_pool_has_every_choice_of_a_block() -> None:
    for field in ("norm", "position", "mlp", "tie_embeddings", "attn_bias", "head_bias"):
        assert len({getattr(config, field) for config in POOL}) > 1, field
