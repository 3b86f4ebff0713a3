"""Params in other libraries and dtypes, and as pytrees of torch and JAX."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import LLAMA_CONFIG, drawn, host
from tinyxp import Params, init


def test_to_and_back(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    there = params.to(backend.xp)
    assert there.xp is backend.xp
    assert there.config == params.config
    back = there.to(np)
    assert back.xp is np
    for name, x in params.items():
        assert backend.is_array(there[name])
        assert np.array_equal(back[name], x)
        assert back[name].dtype == x.dtype


def test_to_itself_copies_nothing(backend: tinyxp.Backend) -> None:
    there = drawn(LLAMA_CONFIG).to(backend.xp)
    assert all(x is there[name] for name, x in there.to().items())
    assert all(x is there[name] for name, x in there.to(backend.xp, dtype="float32").items())


def test_to_torch_shares_memory() -> None:
    torch = pytest.importorskip("torch")
    params = init(LLAMA_CONFIG)
    there = params.to(torch)
    assert there["embed.weight"].data_ptr() == params["embed.weight"].ctypes.data
    assert np.shares_memory(there.to(np)["embed.weight"], params["embed.weight"])


def test_read_only_memory_converts_without_a_warning(backend: tinyxp.Backend) -> None:
    arrays = {name: x.copy() for name, x in drawn(LLAMA_CONFIG).items()}
    for x in arrays.values():
        x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there = Params(arrays, LLAMA_CONFIG).to(backend.xp)
        tinyxp.forward(there, [[1, 2, 3, 4, 5]])


def test_views_that_are_not_contiguous(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG)
    arrays = {name: np.asfortranarray(x) for name, x in params.items()}
    there = Params(arrays, LLAMA_CONFIG).to(backend.xp)
    assert all(np.array_equal(host(there[name]), x) for name, x in params.items())


def test_bfloat16_through_numpy_is_float32() -> None:
    torch = pytest.importorskip("torch")
    half = drawn(LLAMA_CONFIG).to(torch, dtype="bfloat16")
    here = half.to(np)
    assert here["embed.weight"].dtype == np.float32
    assert np.array_equal(here["embed.weight"], half["embed.weight"].float().numpy())


def test_bfloat16_between_libraries_stays_bfloat16() -> None:
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    half = drawn(LLAMA_CONFIG).to(torch, dtype="bfloat16")
    assert half.to(jnp)["embed.weight"].dtype == jnp.bfloat16
    assert np.array_equal(host(half.to(jnp)["embed.weight"]), host(half["embed.weight"]))


@pytest.mark.parametrize(
    "library, module",
    [
        ("torch", "torch"),
        ("torch", "array_api_compat.torch"),
        ("numpy", "numpy"),
        ("numpy", "array_api_compat.numpy"),
        ("jax", "jax"),
        ("jax", "jax.numpy"),
    ],
)
def test_xp_in_every_accepted_form(library: str, module: str) -> None:
    namespace = pytest.importorskip(module)
    assert drawn(LLAMA_CONFIG).to(namespace).xp is tinyxp.backend(library).xp


@pytest.mark.parametrize("xp", [3, None.__class__, object()], ids=["int", "type", "object"])
def test_what_is_no_namespace(xp: Any) -> None:
    with pytest.raises(ValueError, match="xp is"):
        drawn(LLAMA_CONFIG).to(xp)


def test_a_pytree_of_torch() -> None:
    torch = pytest.importorskip("torch")
    pytree = torch.utils._pytree
    params = drawn(LLAMA_CONFIG).to(torch)
    leaves, spec = pytree.tree_flatten(params)
    assert [x.shape for x in leaves] == [x.shape for x in params.values()]
    again = pytree.tree_unflatten([2.0 * x for x in leaves], spec)
    assert isinstance(again, Params)
    assert again.config is params.config
    assert torch.equal(again["head.weight"], 2.0 * params["head.weight"])


def test_a_pytree_of_jax() -> None:
    jax = pytest.importorskip("jax")
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    leaves, structure = jax.tree.flatten(params)
    assert len(leaves) == len(params)
    again = jax.tree.map(lambda x: 2.0 * x, params)
    assert isinstance(again, Params)
    assert again.config is params.config
    assert np.array_equal(again["head.weight"], 2.0 * params["head.weight"])
    # Another config is another structure: jit must not take the one's code for the other.
    other = Params(dict(params), replace(LLAMA_CONFIG, norm_eps=1e-3))
    assert jax.tree.structure(other) != structure
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert paths == [f"['{name}']" for name in params]
