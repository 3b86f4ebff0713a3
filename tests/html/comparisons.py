"""Comparisons of every kind that a page has to show."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import tinyxp
from tests.reference import drawn
from tinyxp.doctor import Comparison, compare

from .forward_passes import CONFIGS

LLAMA, GPT2 = CONFIGS["llama"], CONFIGS["gpt2"]
IDS = np.random.default_rng(3).integers(0, LLAMA.vocab_size, (1, 9))


def change_weight(
    config: tinyxp.Config, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> tinyxp.Params:
    arrays = dict(drawn(config))
    return tinyxp.Params(arrays | {name: change(np.array(arrays[name]))}, config)


def change_trace(change: Callable[[dict[str, np.ndarray]], object], config: tinyxp.Config = LLAMA) -> Any:
    """A port of the drawn model, with a change to its trace."""

    def port(ids: np.ndarray) -> dict[str, np.ndarray]:
        points = {name: np.array(x) for name, x in tinyxp.trace(drawn(config), ids).items()}
        change(points)
        return points

    return port


@cache
def different() -> Comparison:
    other = change_weight(LLAMA, "blocks.1.attn.k.weight", lambda x: x[::-1].copy())
    return compare(drawn(LLAMA), other, IDS)


@cache
def different_shape() -> Comparison:
    """Another shape in the MLP, and no other difference."""
    port = change_trace(lambda p: p.update({"blocks.0.mlp.up": p["blocks.0.mlp.up"][..., :-1]}))
    return compare(drawn(LLAMA), port, IDS)


@cache
def not_finite() -> Comparison:
    """A NaN, an infinity and a missing point; over 32 positions."""

    def change(points: dict[str, np.ndarray]) -> None:
        points["blocks.0.attn.weights"][0, 2, 3, 1] = np.nan
        points["blocks.1.residual"][0, 4, 7] = np.inf
        points["logits"][0, 5:] = np.nan
        del points["blocks.0.mlp.out"]

    return compare(drawn(LLAMA), change_trace(change))


@cache
def without_reference() -> Comparison:
    """No weights on either side; two rows, one of them padded."""
    mask = np.ones((2, 6), bool)
    mask[:, 0] = mask[1, :3] = False

    def port(params: tinyxp.Params) -> Any:
        return lambda ids, mask: tinyxp.forward(params, ids, mask=mask)

    other = change_weight(LLAMA, "blocks.1.mlp.down.weight", np.negative)
    return compare(port(drawn(LLAMA)), port(other), np.arange(12).reshape(2, 6), mask=mask)


@cache
def agreeing() -> Comparison:
    port = change_trace(lambda points: points["logits"].__iadd__(np.float32(1e-7)), GPT2)
    return compare(drawn(GPT2), port)


ALL = (different, different_shape, not_finite, without_reference, agreeing)
