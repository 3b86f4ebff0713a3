"""Small models of each family, and what copies of tinyxp compute with them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tinyxp import Config, Params
from tinyxp.config import GPT2
from tinyxp.testing.strategies import random_arrays
from tinyxp.testing.subjects.decoder import Modules
from tools.mutants import load

SMALL: dict[str, Any] = {
    "vocab_size": 11,
    "n_layers": 2,
    "d_model": 8,
    "d_ff": 12,
    "max_seq_len": 16,
    "norm_eps": 0.1,
}
SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
CONFIGS: dict[str, tuple[Config, ...]] = {
    "gpt2": (
        Config(**GPT2 | SMALL, n_heads=2, n_kv_heads=2),
        Config(**GPT2 | SMALL | {"mlp": "gelu", "tie_embeddings": False}, n_heads=2, n_kv_heads=2),
    ),
    "llama": (
        Config(**SMALL, n_heads=4, n_kv_heads=2, rope_scaling={"rope_type": "linear", "factor": 4.0}),
        Config(
            **SMALL,
            n_heads=2,
            n_kv_heads=1,
            rope_theta=100.0,
            tie_embeddings=True,
            attn_bias=True,
            attn_out_bias=True,
            mlp_bias=True,
            rope_scaling={"rope_type": "llama3", "factor": 8.0, **SCALING},
        ),
    ),
    "mixed": (
        Config(**SMALL, n_heads=2, n_kv_heads=2, mlp="relu2", norm="layer", head_bias=True, mlp_bias=True),
        Config(**GPT2 | SMALL | {"norm": "rms", "mlp": "relu2"}, n_heads=2, n_kv_heads=1, head_bias=True),
    ),
}
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
MASK = np.array([[False, True, False, True, True], [True, True, True, True, True]])
TARGETS = np.array([[-100, 4, -100, 5, 9], [2, 6, 5, 3, 0]])
POSITIONS = np.array([[0, 0, 1, 3, 4], [1, 2, 3, 4, 5]])
WHOLE = ("attention", "batch", "cache", "causality", "embedding", "head", "heads", "loss", "norm", "padding",
         "positions", "residual", "rotation", "structure")  # fmt: skip
"""Regions whose faults a pass in float64 shows, but for those that follow."""
HIDDEN = {
    "cache-changed-in-place", "cache-values-written-in-place", "full-mask-drops-causality", "kernels-ignored",
    "last-column-for-last-real", "loss-nan-of-nothing", "loss-unshifted", "rms-norm-rounded-last",
    "scores-in-half-precision", "up-traced-before-the-gate",
}  # fmt: skip


def params(config: Config, dtype: str = "float64") -> Params:
    return Params({name: x.astype(dtype) for name, x in random_arrays(config, 3).items()}, config)


def results(modules: Modules, family: str) -> list[np.ndarray]:
    """What models of a family compute: a pass with padding, one in chunks, one at given positions, a loss."""
    found = []
    for config in CONFIGS[family]:
        p = params(config)
        cache, chunks = modules.cache.new_cache(p, 2, 7), []
        for start, stop in ((0, 2), (2, 4), (4, 5)):
            piece = slice(start, stop)
            logits, cache = modules.model.extend(p, IDS[:, piece], cache, mask=MASK[:, piece])
            chunks.append(logits)
        found += [modules.model.forward(p, IDS, mask=MASK)[MASK], np.concatenate(chunks, axis=1)[MASK]]
        found += [
            modules.model.forward(p, IDS, positions=POSITIONS),
            modules.model.loss(p, IDS, TARGETS, mask=MASK),
        ]
    return [np.asarray(x) for x in found]


@cache
def expected(family: str) -> list[np.ndarray]:
    return results(load(), family)
