"""Kernels that callers put in, and what they show of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, IDS, LLAMA_CONFIG, distance, drawn, filled, host
from tinyxp import Params, forward, ops


def test_an_attention_without_its_mask_sees_the_future(params: Params) -> None:
    def blind(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = ops.untapped) -> Any:
        return ops.attention(q, k, v, visible | True, xp=xp, tap=tap)

    right, wrong = forward(params, IDS), forward(params, IDS, kernels={"attention": blind})
    assert distance(right, wrong) > 0.01
    # The last position sees everything in the first block, so only the second spoils it.
    assert distance(host(right)[:, 0], host(wrong)[:, 0]) > 0.01


@pytest.mark.parametrize("name", ops.Kernels._fields)
def test_every_kernel_is_called_and_can_be_replaced(backend: tinyxp.Backend, name: str) -> None:
    config = {
        "layer_norm": GPT2_CONFIG,
        "gelu_tanh": GPT2_CONFIG,
        "gelu": replace(GPT2_CONFIG, mlp="gelu"),
        "relu2": replace(GPT2_CONFIG, mlp="relu2"),
    }.get(name, LLAMA_CONFIG)
    params = drawn(config) if config.mlp in ("gelu", "relu2") else filled(config)
    params = params.to(backend.xp, dtype="float32")
    calls = []

    def kernel(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return getattr(ops, name)(*args, **kwargs)

    def run(kernels: Any) -> Any:
        if name == "linear_cross_entropy":
            return tinyxp.loss(params, IDS, IDS, kernels=kernels)
        cache = tinyxp.new_cache(params, 1, 5)
        return tinyxp.extend(params, IDS, cache, kernels=kernels)[0]

    plain = run(None)
    assert np.array_equal(host(run({name: kernel})), host(plain))
    per_layer = {"linear": 7, "project": 2, "rms_norm": 2, "layer_norm": 2, "rotary": 2, "write_cache": 2}
    per_layer["linear_cross_entropy"] = 0
    after = ("linear", "rms_norm", "layer_norm", "linear_cross_entropy")  # the last norm and the head
    assert len(calls) == 2 * per_layer.get(name, 1) + (name in after)
    assert np.array_equal(host(run(ops.Kernels(**{name: kernel}))), host(plain))


def test_kernels_of_wrong_names() -> None:
    with pytest.raises(ValueError, match=r"kernels.*'softmaks'.*attention"):
        forward(drawn(LLAMA_CONFIG), IDS, kernels={"softmaks": ops.softmax})


@pytest.mark.parametrize(
    "kernels", [3, "linear", [ops.linear], {"linear": 3}], ids=["int", "str", "list", "no function"]
)
def test_kernels_of_wrong_types(kernels: Any) -> None:
    with pytest.raises(ValueError, match="kernels"):
        forward(drawn(LLAMA_CONFIG), IDS, kernels=kernels)


def test_the_mask_is_made_once(params: Params) -> None:
    masks = []

    def attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any = ops.untapped) -> Any:
        masks.append(visible)
        return ops.attention(q, k, v, visible, xp=xp, tap=tap)

    forward(params, IDS * 2, kernels={"attention": attention})
    assert len(masks) == params.config.n_layers
    assert all(mask is masks[0] for mask in masks)
    assert tuple(masks[0].shape) == (1, 1, 5, 5)


def test_last_costs_the_head_of_one_column(params: Params) -> None:
    """At t 4096 and a vocabulary of 151,936 that is 0.61 MB instead of 2.49 GB."""
    sizes = []

    def linear(x: Any, weight: Any, bias: Any = None, *, xp: Any) -> Any:
        y = ops.linear(x, weight, bias, xp=xp)
        sizes.append(tuple(y.shape))
        return y

    cache = tinyxp.new_cache(params, 2, 5)
    logits, _ = tinyxp.extend(params, IDS * 2, cache, last=True, kernels={"linear": linear})
    assert tuple(logits.shape) == sizes[-1] == (2, 1, 11)
    assert sum(size[-1] == 11 for size in sizes) == 1
