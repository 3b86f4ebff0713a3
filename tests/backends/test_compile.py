"""``Backend.compile``: forward for parameters that stay, as fast as each library makes it."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    LLAMA_TIED_CONFIG,
    compiled,
    distance,
    drawn,
    filled,
    float64_on,
    host,
    kind,
    libraries,
)
from tinyxp import Params, forward, ops
from tinyxp.dtypes import EPSILON
from tinyxp.testing.laws.reference import exact
from tinyxp.testing.strategies import random_arrays
from tinyxp.testing.subjects.decoder import POOL

CONFIGS = {
    "gpt2": GPT2_CONFIG,
    "untied gpt2": replace(GPT2_CONFIG, tie_embeddings=False, mlp="gelu"),
    "llama": LLAMA_CONFIG,
    "tied llama": LLAMA_TIED_CONFIG,
    "biases": replace(LLAMA_CONFIG, attn_bias=True, attn_out_bias=True, mlp_bias=True),
}
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.15, "float16": 0.02}
"""Logits of size 3; half precision rounds some sixty times on the way."""

LIBRARIES = pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
TWO = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]
MASK = [[False, False, True, True, True], [True, True, True, True, False]]
POSITIONS = [[0, 2, 3, 7, 9], [1, 1, 2, 3, 4]]
REAL = np.array(MASK)


INPUTS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "ids": [(IDS, {})],
    "one id": [([[7]], {})],
    "mask": [(TWO, {"mask": MASK})],
    "positions": [(TWO, {"positions": POSITIONS})],
    "both": [
        (TWO, {"mask": MASK, "positions": POSITIONS}),
        (np.asarray(TWO), {"mask": np.asarray(MASK), "positions": POSITIONS}),
    ],
}
"""Ids and what is given with them; each kind is a compilation on JAX."""


@pytest.mark.parametrize("library", libraries("numpy", "torch", "strict"))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_it_is_forward(library: str, config: Any) -> None:
    with float64_on(tinyxp.backend(library)):
        for dtype in tinyxp.backend(library).dtypes():
            check_it_is_forward(library, config, dtype, [case for cases in INPUTS.values() for case in cases])


def jax_cases() -> list[Any]:
    """Every config, dtype and kind of input, a compilation each.

    ``make test`` runs every dtype of every config, and every kind of input of two.
    ``make test-all`` runs them all.
    """
    product = itertools.product(CONFIGS, ("float64", "float32", "bfloat16", "float16"), INPUTS)
    return [
        pytest.param(
            name, dtype, kind, marks=() if kind == "both" or (name, dtype) in EVERY_KIND else pytest.mark.rare
        )
        for name, dtype, kind in product
    ]


EVERY_KIND = [("gpt2", "float32"), ("llama", "float32")]


@pytest.mark.parametrize("name, dtype, inputs", jax_cases())
def test_it_is_forward_on_jax(name: str, dtype: str, inputs: str) -> None:
    pytest.importorskip("jax")
    with float64_on(tinyxp.backend("jax")):
        check_it_is_forward("jax", CONFIGS[name], dtype, INPUTS[inputs])


def check_it_is_forward(library: str, config: Any, dtype: str, cases: list[Any]) -> None:
    backend = tinyxp.backend(library)
    params = drawn(config).to(backend.xp, dtype=dtype)
    exactly = Params({name: host(x).astype(np.float64) for name, x in params.items()}, config)
    run = backend.compile(params)
    for ids, given in cases:
        found, expected = run(ids, **given), forward(exactly, ids, **given)
        assert backend.is_array(found)
        assert kind(found) == dtype
        seen = REAL if "mask" in given else np.ones(np.shape(ids), dtype=bool)
        assert distance(host(found)[seen], expected[seen]) <= TOLERANCE[dtype], (dtype, given)


@LIBRARIES
def test_it_is_called_again_with_other_shapes(library: str) -> None:
    backend = tinyxp.backend(library)
    run = backend.compile(filled(LLAMA_CONFIG).to(backend.xp, dtype="float32"))
    for width in (1, 2, 5, 2):
        ids = np.arange(3 * width).reshape(3, width) % 11
        assert distance(run(ids), forward(filled(LLAMA_CONFIG), ids)) <= 1e-5


REFUSED: list[tuple[Any, dict[str, Any]]] = [
    ([[3, 11]], {}),
    ([[-1, 3]], {}),
    ([[0.5, 1.0]], {}),
    ([3, 1], {}),
    ([[]], {}),
    (IDS, {"mask": [[1, 1, 1]]}),
    (IDS, {"mask": [[2] * 5]}),
    (IDS, {"positions": [[0, 1, 2, 3, 16]]}),
    (IDS, {"positions": [[0, 1, 2, 3, -1]]}),
    (IDS, {"positions": [[0, 1]]}),
    ([[1] * 17], {}),
]


@LIBRARIES
@pytest.mark.parametrize("ids, given", REFUSED, ids=repr)
def test_it_refuses_what_forward_refuses(library: str, ids: Any, given: dict[str, Any]) -> None:
    backend = tinyxp.backend(library)
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    with pytest.raises(ValueError) as ours:  # noqa: PT011 - the message is compared
        forward(params, ids, **given)
    with pytest.raises(ValueError) as theirs:  # noqa: PT011
        backend.compile(params)(ids, **given)
    assert str(theirs.value) == str(ours.value)


@LIBRARIES
def test_it_leaves_the_parameters_as_they_are(library: str) -> None:
    backend = tinyxp.backend(library)
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    before = dict(params)
    backend.compile(params)(IDS)
    assert all(params[name] is x for name, x in before.items())
    assert all(np.array_equal(host(x), drawn(LLAMA_CONFIG)[name]) for name, x in before.items())


def test_torch_keeps_nothing_for_gradients() -> None:
    torch = pytest.importorskip("torch")
    params = drawn(LLAMA_CONFIG).to(tinyxp.backend("torch").xp)
    for x in params.values():
        x.requires_grad_(True)
    assert forward(params, IDS).requires_grad
    assert not tinyxp.backend("torch").compile(params)(IDS).requires_grad
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


# Rounding


def errors(library: str, config: Any, paths: dict[str, Any], seed: int) -> dict[str, float]:
    """How far each path's float32 logits are from the referee, relative to the largest."""
    backend = tinyxp.backend(library)
    arrays = {name: x.astype(np.float32) for name, x in random_arrays(config, seed).items()}
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, (3, 9))
    truth = exact(config, {name: x.astype(np.float64) for name, x in arrays.items()}, ids)
    params = Params(arrays, config).to(backend.xp)
    scale = float(np.max(np.abs(truth)))
    found = {}
    for path, run in paths.items():
        with backend.inference() if path == "kernels" else nullcontext():
            found[path] = distance(run(params, ids), truth) / scale
    return found


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("number", range(len(POOL)))
def test_the_fast_path_rounds_hardly_more_than_the_pure_one(library: str, number: int) -> None:
    """Over some weights, since a single case is luck: of each path its largest error."""
    backend = tinyxp.backend(library)
    kernels = ops.Kernels(**backend.engine.kernels)
    paths = {
        "pure": forward,
        "kernels": compiled(backend, partial(forward, kernels=kernels)),
        "compiled": lambda params, ids: backend.compile(params)(ids),
    }
    found = [errors(library, POOL[number], paths, seed) for seed in range(8)]
    pure = max(error["pure"] for error in found)
    for path in paths:
        assert max(error[path] for error in found) <= 2.0 * pure + EPSILON["float32"], path
