"""Matrices of eight bits on torch: what they stand for, and what they cost a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import Config

torch = pytest.importorskip("torch")
from tinyxp.backends import torch_int8  # noqa: E402

BACKEND = tinyxp.backend("torch")
CONFIGS = {
    "tied": Config(tie_embeddings=True),
    "untied": Config(),
    "gpt2": Config(
        norm="layer", position="learned", mlp="gelu_tanh", attn_bias=True, attn_out_bias=True, mlp_bias=True
    ),
    "odd": Config(d_model=10, n_heads=5, n_kv_heads=5, head_dim=2, d_ff=7, vocab_size=19),
}


def made(config: Config) -> tinyxp.Params:
    """Random parameters of the scale that training gives."""
    small = tinyxp.init(config)
    return tinyxp.Params({name: 5.0 * x for name, x in small.items()}, config).to(BACKEND.xp)


@pytest.mark.parametrize("shape", [(3, 16), (5, 7), (1, 33)])
def test_rows_are_rounded_to_127_steps(shape: tuple[int, int]) -> None:
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    found = torch_int8.round_matrix(weight)
    assert found.values.dtype == torch.int8
    assert found.values.abs().amax(1).tolist() == [127] * shape[0]
    step = found.scale.float()[:, None]
    error = (found.values.float() * step - weight).abs()
    # Half a step, and for the largest of a row what rounding its scale to bfloat16 takes.
    assert bool((error <= 0.5 * step + 2.0**-8 * weight.abs()).all())


def test_a_row_of_zeros_stays_zero() -> None:
    found = torch_int8.round_matrix(torch.zeros(2, 16))
    assert not found.values.any()
    assert torch.isfinite(found.dequantize()).all()


@pytest.mark.parametrize("rows", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("width", [7, 16, 24, 33, 48])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_product_is_that_of_the_rounded_matrix(rows: int, width: int, dtype: str) -> None:
    """Few rows and many, widths that torch's own product takes and those it does not."""
    rng = np.random.default_rng(rows * width)
    x = torch.from_numpy(rng.normal(size=(1, rows, width))).to(getattr(torch, dtype))
    weight = torch_int8.round_matrix(torch.from_numpy(rng.normal(size=(11, width)).astype(np.float32)))
    bias = torch.from_numpy(rng.normal(size=11)).to(x.dtype)
    rounded = weight.values.double() * weight.scale.double()[:, None]
    exact = x.double() @ rounded.T + bias.double()
    found = torch_int8.linear(x, weight, bias)
    assert found.dtype == x.dtype
    # bfloat16 rounds by 2^-9: both factors of each product, then the sum, and once more with the bias.
    allowed = 2.0**-8 * (x.double().abs() @ rounded.abs().T + exact.abs() + bias.double().abs())
    assert bool(((found.double() - exact).abs() <= allowed).all())


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_float32_but_for_eight_bits(name: str) -> None:
    params = made(CONFIGS[name])
    ids = np.random.default_rng(0).integers(0, params.config.vocab_size, (2, 9))
    exact = BACKEND.to_numpy(tinyxp.forward(params, ids))
    found = BACKEND.to_numpy(BACKEND.compile(BACKEND.engine.quantize(params))(ids))
    spread = exact.std()
    error = np.sqrt(np.mean((found - exact) ** 2))
    assert 0.0 < error <= 0.05 * spread


@pytest.mark.parametrize("name", CONFIGS)
def test_generation_goes_on(name: str) -> None:
    params = BACKEND.engine.quantize(made(CONFIGS[name]))
    new = tinyxp.generate(params, [[1, 2, 3], [4, 5, 6]], 5)
    assert new.shape == (2, 5)
    assert not params.config.tie_embeddings


def test_it_takes_a_quarter_of_the_memory() -> None:
    config = Config(d_model=256, d_ff=512, n_heads=4, n_kv_heads=2, head_dim=64)
    params = tinyxp.init(config, xp=BACKEND.xp)

    def held(given: tinyxp.Params) -> int:
        return sum(x.nbytes for name, x in given.items() if name.startswith("blocks."))

    assert held(BACKEND.engine.quantize(params)) < 0.27 * held(params)


def test_again_changes_nothing() -> None:
    params = BACKEND.engine.quantize(made(CONFIGS["tied"]))
    assert BACKEND.engine.quantize(params) is params


def test_gradients_do_not_keep_the_given_ones_alive() -> None:
    params = made(CONFIGS["tied"])
    for x in params.values():
        x.requires_grad_(True)
    assert not any(_tracked(x) for x in BACKEND.engine.quantize(params).block(0).values())
    assert not any(x.grad_fn for x in BACKEND.engine.prepare(params).block(0).values())


def _tracked(x: Any) -> bool:
    return getattr(x, "grad_fn", None) is not None


@pytest.mark.parametrize("library", ["numpy", "strict"])
def test_other_libraries_say_so(library: str) -> None:
    if tinyxp.available_backends()[library] is None:
        pytest.skip(f"{library} is not installed")
    backend = tinyxp.backend(library)
    with pytest.raises(ValueError, match="dtype is 'int8', which .* has no matrix product for; use"):
        backend.engine.quantize(tinyxp.init(Config(), xp=backend.xp))
