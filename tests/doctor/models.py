"""Small models of both families, and ports of them that are wrong in a chosen way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tinyxp
from tests.reference import drawn, host
from tinyxp import Config, Params
from tinyxp.config import GPT2

GPT2_SMALL = Config(
    **GPT2, vocab_size=61, max_seq_len=48, d_model=32, n_layers=2, n_heads=4, n_kv_heads=4, d_ff=64
)
LLAMA_SMALL = Config(vocab_size=61, n_layers=2)  # 4 heads on 2
QWEN2_SMALL = replace(LLAMA_SMALL, attn_bias=True, tie_embeddings=True, norm_eps=1e-6)
CONFIGS = {"gpt2": GPT2_SMALL, "llama": LLAMA_SMALL, "qwen2": QWEN2_SMALL}
IDS = np.random.default_rng(5).integers(0, 61, (2, 12))

Trace = dict[str, np.ndarray]
Change = Callable[[str, Any], Any]


def traced(params: Params, ids: Any, mask: Any = None) -> Trace:
    """Every trace point, on NumPy."""
    return {name: host(x) for name, x in tinyxp.trace(params, ids, mask=mask).items()}


def port(params: Params, change: Change | None = None, kernels: Any = None) -> Callable[..., dict[str, Any]]:
    """A function from ids to a trace, in arrays of the parameters' library, whose run goes on from what
    ``change`` makes of each point."""

    def trace(ids: np.ndarray, mask: Any = None) -> dict[str, Any]:
        points: dict[str, Any] = {}

        def tap(name: str, x: Any) -> Any:
            points[name] = x if change is None else change(name, x)
            return points[name]

        tinyxp.forward(params, ids, mask=mask, tap=tap, kernels=kernels)
        return points

    return trace


def at(point: str, change: Callable[[Any], Any]) -> Change:
    """A change of one point, or, where there is no dot, of that kind of point in every block."""
    return lambda name, x: change(x) if name == point or name.endswith(f".{point}") else x


def edited(params: Params, point: str, change: Callable[[np.ndarray], Any]) -> Callable[..., Trace]:
    """A port whose record of one point is changed, and whose run is not."""

    def trace(ids: np.ndarray, mask: Any = None) -> Trace:
        points = traced(params, ids, mask)
        x = np.array(points[point])
        changed = change(x)
        return points | {point: x if changed is None else changed}

    return trace


def with_weight(params: Params, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Params:
    """The model with one other parameter."""
    return Params(dict(params) | {name: change(np.array(params[name]))}, params.config)


def llama() -> Params:
    return drawn(LLAMA_SMALL)


def gpt2() -> Params:
    return drawn(GPT2_SMALL)
