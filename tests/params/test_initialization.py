"""First values: the same numbers on every backend, GPT-2's scale, dtypes and devices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import LLAMA_CONFIG, drawn, filled, float64_on, host
from tinyxp import Config, init


def test_init_is_the_same_on_every_backend(backend: tinyxp.Backend) -> None:
    config = replace(LLAMA_CONFIG, attn_bias=True)
    here = init(config, seed=5, xp=backend.xp)
    there = init(config, seed=5)
    assert here.xp is backend.xp
    for name, x in there.items():
        assert np.array_equal(host(here[name]), x)
        assert host(here[name]).dtype == np.float32
    assert not np.array_equal(init(config, seed=6)["embed.weight"], there["embed.weight"])


def test_init_scale() -> None:
    config = Config(vocab_size=1000, n_layers=8, d_model=64, d_ff=256, attn_bias=True, norm="layer")
    params = init(config)
    for name, x in params.items():
        if name.endswith(".bias"):
            assert not x.any()
        elif x.ndim == 1:
            assert (x == 1.0).all()
        else:
            residual = name.endswith(("attn.o.weight", "mlp.down.weight"))
            expected = 0.02 / math.sqrt(16) if residual else 0.02
            # Five standard errors of the estimate.
            assert abs(x.std() / expected - 1.0) < 5.0 / math.sqrt(2 * x.size), name
            assert abs(x.mean()) < 5.0 * expected / math.sqrt(x.size), name


def test_init_dtypes(backend: tinyxp.Backend) -> None:
    double = init(LLAMA_CONFIG, dtype="float64")
    with float64_on(backend):
        for dtype in backend.dtypes():
            params = init(LLAMA_CONFIG, xp=backend.xp, dtype=dtype)
            assert {str(x.dtype).rpartition(".")[2] for x in params.values()} == {dtype}
            # Drawn in float64, then rounded once.
            rounded = host(backend.from_numpy(double["embed.weight"], dtype=dtype))
            assert np.array_equal(host(params["embed.weight"]), rounded)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True], ids=repr)
def test_init_refuses_a_seed(seed: Any) -> None:
    with pytest.raises(ValueError, match=rf"^seed is {seed!r}"):
        init(LLAMA_CONFIG, seed=seed)


@pytest.mark.parametrize("dtype", ["int8", "float", "complex64", "", None, 3], ids=repr)
def test_unknown_dtypes(backend: tinyxp.Backend, dtype: Any) -> None:
    with pytest.raises(ValueError, match=rf"^dtype is {dtype!r}.*float32"):
        init(LLAMA_CONFIG, xp=backend.xp, dtype=dtype)


def test_a_dtype_that_the_library_lacks() -> None:
    with pytest.raises(ValueError, match=r"^dtype is 'bfloat16'; numpy has float64, float32, float16"):
        init(LLAMA_CONFIG, dtype="bfloat16")
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(ValueError, match=r"^dtype is 'float16'.*float64, float32"):
        init(LLAMA_CONFIG, xp=strict, dtype="float16")


def test_jax_says_that_it_needs_x64() -> None:
    jnp = pytest.importorskip("jax.numpy")
    for refused in (
        lambda: init(LLAMA_CONFIG, xp=jnp, dtype="float64"),
        lambda: drawn(LLAMA_CONFIG).to(jnp, dtype="float64"),
        lambda: filled(LLAMA_CONFIG).to(jnp),
        lambda: tinyxp.forward(filled(LLAMA_CONFIG), [[1]], xp=jnp),
    ):
        with pytest.raises(ValueError, match="jax_enable_x64"):
            refused()


def test_unknown_devices(backend: tinyxp.Backend) -> None:
    for refused in (
        lambda: init(LLAMA_CONFIG, xp=backend.xp, device="warp"),
        lambda: drawn(LLAMA_CONFIG).to(backend.xp, device="warp"),
    ):
        with pytest.raises(ValueError, match=r"^device is 'warp'"):
            refused()


def test_the_first_device_is_the_default(backend: tinyxp.Backend) -> None:
    first = backend.devices()[0]
    params = init(LLAMA_CONFIG, xp=backend.xp, device=first)
    assert params["embed.weight"].device == init(LLAMA_CONFIG, xp=backend.xp)["embed.weight"].device
