"""Choices of the block that are one row of a table: squared ReLU, and a bias of the head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    LLAMA_TIED_CONFIG,
    distance,
    drawn,
    host,
    libraries,
)
from tinyxp import Config, UnsupportedModelError, ops

RELU2 = replace(LLAMA_CONFIG, mlp="relu2")
BIASED = [replace(config, head_bias=True) for config in (LLAMA_CONFIG, LLAMA_TIED_CONFIG, GPT2_CONFIG)]


def test_squared_relu_is_what_its_name_says(backend: tinyxp.Backend) -> None:
    x = np.asarray([-2.0, -0.0, 0.5, 3.0, np.nan], np.float32)
    y = host(ops.relu2(backend.from_numpy(x), xp=backend.xp))
    np.testing.assert_array_equal(y, np.asarray([0.0, 0.0, 0.25, 9.0, np.nan], np.float32))


def test_an_ungated_mlp_of_squared_relu(backend: tinyxp.Backend) -> None:
    params = drawn(RELU2).to(backend.xp)
    points = {name: host(x) for name, x in tinyxp.trace(params, IDS).items()}
    assert "blocks.0.mlp.gate" not in points
    assert "blocks.0.mlp.gate.weight" not in params
    expected = np.maximum(points["blocks.1.mlp.up"], 0.0) ** 2
    assert distance(points["blocks.1.mlp.hidden"], expected) <= 1e-6
    assert expected.max() > 0.1


@pytest.mark.parametrize("config", BIASED, ids=["llama", "tied", "gpt2"])
def test_the_head_s_bias_is_added_to_every_logit(backend: tinyxp.Backend, config: Config) -> None:
    params = drawn(config)
    plain = tinyxp.Params(
        {name: x for name, x in params.items() if name != "head.bias"}, replace(config, head_bias=False)
    )
    expected = tinyxp.forward(plain, IDS) + params["head.bias"]
    there = params.to(backend.xp)
    assert distance(tinyxp.forward(there, IDS), expected) <= 1e-6
    cache = tinyxp.new_cache(there, 1, 5)
    assert distance(tinyxp.extend(there, IDS, cache, last=True)[0], expected[:, -1:]) <= 1e-5
    loss = ops.cross_entropy(expected, np.asarray(IDS), xp=np)
    assert float(host(tinyxp.loss(there, IDS, IDS))) == pytest.approx(float(loss), abs=1e-5)
    assert np.abs(params["head.bias"]).max() > 0.1


@pytest.mark.parametrize("library", libraries("torch", "jax"))
@pytest.mark.parametrize("config", [BIASED[0], BIASED[1]], ids=["untied", "tied"])
def test_a_fused_loss_and_its_gradients_know_the_head_s_bias(library: str, config: Config) -> None:
    """Of one block: the bias comes after the last."""
    backend = tinyxp.backend(library)
    params, targets = drawn(replace(config, n_layers=1)).to(backend.xp), [[1, -100, 4, 1, 5]]
    kernel = {"linear_cross_entropy": backend.engine.kernels["linear_cross_entropy"]}

    def losses(kernels: dict[str, object] | None) -> tuple[float, tinyxp.Params]:
        f = backend.value_and_grad(lambda p: tinyxp.loss(p, IDS, targets, kernels=kernels))
        value, gradients = (f if backend.eager else backend.jit(f))(params)
        return float(host(value)), gradients

    (plain, expected), (fused, gradients) = losses(None), losses(kernel)
    assert fused == pytest.approx(plain, abs=1e-6)
    assert all(distance(gradients[name], expected[name]) <= 1e-6 for name in params)
    assert np.abs(host(gradients["head.bias"])).max() > 0.01


def test_both_count_and_save_and_generate(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = replace(RELU2, head_bias=True)
    params = drawn(config)
    assert tinyxp.count_parameters(config)["total"] == sum(x.size for x in params.values())
    tinyxp.save(params, tmp_path / "model.npz")
    read = tinyxp.load(tmp_path / "model.npz")
    assert read.config == config
    assert all(np.array_equal(read[name], x) for name, x in params.items())
    assert np.array_equal(tinyxp.generate(read, IDS, 4), tinyxp.generate(params, IDS, 4, cache=False))


@pytest.mark.parametrize(
    "config", [RELU2, replace(GPT2_CONFIG, mlp="relu2"), *BIASED], ids=["llama relu2", "gpt2 relu2", *"abc"]
)
def test_no_class_of_transformers_here_computes_them(config: Config) -> None:
    with pytest.raises(UnsupportedModelError, match=r"mlp 'relu2'|head_bias True"):
        config.to_hf()
