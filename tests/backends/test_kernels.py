"""The kernels that backends bring: each is the function of ``ops`` that it replaces, in every dtype."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import IDS, array, compiled, distance, filled, float64_on, host, kind, libraries
from tinyxp import Config, forward, ops
from tinyxp.dtypes import EPSILON
from tinyxp.engine import new_decoder


def kernels() -> list[Any]:
    """Every kernel that returns one array, of every backend that is installed."""
    installed = tinyxp.available_backends()
    return [
        (library, name)
        for library in ("numpy", "torch", "jax", "strict")
        if installed[library] is not None
        for name in tinyxp.backend(library).engine.kernels
        if name != "project"  # tests/test_joint.py
    ]


KERNELS = pytest.mark.parametrize("library, name", kernels())
WEIGHTED = ("linear", "layer_norm", "rms_norm")


def call(library: str, name: str, arguments: list[np.ndarray], dtypes: list[str], **settings: Any) -> Any:
    """The kernel's result; floating arguments in their dtypes, all copied: a kernel may write in place."""
    backend = tinyxp.backend(library)
    there = [
        array(backend, x.copy(), dtype if x.dtype == float else None)
        for x, dtype in zip(arguments, dtypes, strict=True)
    ]
    return kernel(library, name, **settings)(*there)


@cache
def kernel(library: str, name: str, **settings: Any) -> Any:
    """The kernel with its settings, compiled whole on JAX, which compiles operations one by one otherwise."""
    backend = tinyxp.backend(library)
    return compiled(backend, partial(backend.engine.kernels[name], **settings, xp=backend.xp))


def rounded(library: str, x: np.ndarray, dtype: str) -> np.ndarray:
    """x as ``dtype`` of the library holds it, in float64."""
    if x.dtype != float:
        return x
    return host(array(tinyxp.backend(library), x, dtype)).astype(np.float64)


def kernel_inputs(name: str) -> list[tuple[list[np.ndarray], dict[str, Any]]]:
    """Arguments for the functions of ``ops``, the awkward ones too."""
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 5, 8)), rng.normal(size=(12, 8)), rng.normal(size=12)
    angles = rng.normal(size=(1, 1, 5, 4))
    q, k, v = (rng.normal(size=(2, heads, 5, 8)) for heads in (4, 2, 2))
    causal = np.tril(np.ones((1, 1, 5, 5), dtype=bool))
    # The first row's first three queries see nothing.
    padded = causal & (np.arange(5) >= np.array([3, 0])[:, None, None, None])
    nothing = np.zeros((2, 1, 5, 5), dtype=bool)
    split = q.swapaxes(1, 2).copy().swapaxes(1, 2)  # as the heads come from a projection: not contiguous
    start = [np.asarray(i) for i in range(4)]
    return {
        "linear": [([x, w], {}), ([x, w, b], {}), ([x[:, :1], w, b], {}), ([x, np.asfortranarray(w)], {})],
        "layer_norm": [
            ([x, b[:8], b[4:]], {"eps": 1e-5}),
            ([x, b[:8], b[4:]], {"eps": 0.5}),
            ([0.0 * x, b[:8], b[4:]], {"eps": 1e-5}),
        ],
        "rms_norm": [
            ([x, b[:8]], {"eps": 1e-5}),
            ([x, b[:8]], {"eps": 0.5}),
            ([0.0 * x, b[:8]], {"eps": 1e-5}),
        ],
        "silu": [([100.0 * x], {}), ([x], {})],
        "gelu": [([x], {}), ([10.0 * x], {})],
        "gelu_tanh": [([x], {}), ([10.0 * x], {})],
        "rotary": [([q, np.cos(angles), np.sin(angles)], {})],
        "attention": [
            ([q, k, v, causal], {}),
            ([q, k, v, padded], {}),
            ([q, k, v, nothing], {}),
            ([q, q, q, padded], {}),
            ([split, k, v, padded], {}),
            ([q, k[:, :1], v[:, :1], padded], {}),
            ([q[:, :, 3:4], k, v, padded[:, :, 3:4]], {}),
            ([q[:, :, 2:], k, v, causal[:, :, 2:]], {}),
        ],
        "write_cache": [([k, v[:, :, :2], at, np.arange(5)], {}) for at in start]
        + [([k, v[:, :, :1], np.asarray(4), np.arange(5)], {}), ([k, v, start[0], np.arange(5)], {})],
        "linear_cross_entropy": [
            ([x, w, np.array([[0, 11, -100, 5, 5], [-100, -100, 1, 2, 3]])], {}),
            ([x, w, np.full((2, 5), -100)], {}),
            ([x[:, 1:2], w, np.array([[7], [-100]])], {}),
        ],
    }[name]


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_kernels_are_named_like_the_functions_they_replace(library: str) -> None:
    assert set(tinyxp.backend(library).engine.kernels) <= set(ops.Kernels._fields)


@pytest.fixture(params=[False, True], ids=["", "inference"])
def inferring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether gradients are out of the question; then torch's product for large matrices takes all."""
    if request.param and tinyxp.available_backends()["torch"] is not None:
        tinyxp.backend("torch")
        monkeypatch.setattr("tinyxp.backends.torch_kernels.LARGE", 1)
    return bool(request.param)


@KERNELS
def test_kernels_are_the_functions_they_replace(library: str, name: str, inferring: bool) -> None:
    """Against the pure function in float64, given the numbers that each dtype can hold."""
    backend = tinyxp.backend(library)
    with float64_on(backend), backend.inference() if inferring else nullcontext():
        for dtype, (arguments, settings) in itertools.product(backend.dtypes(), kernel_inputs(name)):
            exact = getattr(ops, name)(*[rounded(library, x, dtype) for x in arguments], **settings, xp=np)
            found = call(library, name, arguments, [dtype] * len(arguments), **settings)
            # The loss alone is wider than what it is of.
            assert kind(found) == (dtype if found.ndim or dtype == "float64" else "float32")
            if name == "write_cache":
                assert np.array_equal(host(found), exact)
                continue
            # Four roundings, of half an epsilon, of numbers no larger than the largest result or than 1.
            scale = max(1.0, np.max(np.abs(exact)))
            assert distance(found, exact) <= 2.0 * EPSILON[dtype] * scale, (dtype, settings)


@pytest.mark.parametrize("library, name", [pair for pair in kernels() if pair[1] in WEIGHTED])
def test_kernels_take_weights_of_another_dtype(library: str, name: str, inferring: bool) -> None:
    """In float32 beside activations in half precision, say: the result has the dtype of the activations."""
    backend = tinyxp.backend(library)
    with float64_on(backend), backend.inference() if inferring else nullcontext():
        for of_x, of_w in itertools.product(backend.dtypes(), repeat=2):
            for arguments, settings in kernel_inputs(name):
                dtypes = [of_x] + [of_w] * (len(arguments) - 1)
                exact = [rounded(library, x, d) for x, d in zip(arguments, dtypes, strict=True)]
                found = call(library, name, arguments, dtypes, **settings)
                assert kind(found) == of_x
                expected = getattr(ops, name)(*exact, **settings, xp=np)
                # The weights are rounded once more, to the dtype of the activations.
                scale = max(1.0, np.max(np.abs(expected)))
                assert distance(found, expected) <= 4.0 * EPSILON[of_x] * scale, (of_x, of_w)


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
def test_decoding_with_kernels_is_forward(library: str, config: Config) -> None:
    """The decoder that generation drives gives the logits of forward, padded rows too."""
    params = filled(config).to(tinyxp.backend(library).xp, dtype="float32")
    ids = np.array([[8, 8, *IDS[0]], [9, 2, 6, 5, 3, 5, 8]])
    mask = np.array([[False] * 2 + [True] * 5, [True] * 7])
    decoder = new_decoder(params, 2, 9)
    found = [decoder(ids, mask), decoder(np.array([[4], [1]])), decoder(np.array([[0], [10]]))]
    rows = [[*IDS[0], 4, 0], [*ids[1].tolist(), 1, 10]]
    for back, logits in zip((2, 1, 0), found, strict=True):
        for r, row in enumerate(rows):
            expected = forward(filled(config), [row[: len(row) - back]])[0, -1]
            assert distance(logits[r], expected) <= 1e-5
