"""The models of the tests: filled by rule, and random ones at the scale of training."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np

import tinyxp
from tinyxp import Config, Params
from tinyxp.config import GPT2
from tinyxp.shapes import parameter_shapes

from .names import from_theirs, their_shapes

IDS = [[3, 1, 4, 1, 5]]
"""The input of the models that are filled by rule."""

GPT2_CONFIG = Config(
    **GPT2, vocab_size=11, max_seq_len=16, d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_ff=32
)
LLAMA_CONFIG = Config(vocab_size=11, d_model=8, d_ff=12, n_layers=2, n_heads=2, n_kv_heads=1)
LLAMA_TIED_CONFIG = replace(LLAMA_CONFIG, tie_embeddings=True)
CONFIGS = {"gpt2": GPT2_CONFIG, "llama": LLAMA_CONFIG}


@functools.cache
def filled(config: Config) -> Params:
    """The float64 model without random numbers: number n of the k-th sorted parameter of Hugging Face's is
    0.3 sin(0.7 n + 1.3 k), and 1 more for the weights of norms."""
    state = {}
    for k, (name, shape) in enumerate(sorted(their_shapes(config).items())):
        flat = 0.3 * np.sin(0.7 * np.arange(math.prod(shape)) + 1.3 * k)
        is_norm = name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
        state[name] = flat.reshape(shape) + is_norm
    return Params(from_theirs(state, config), config)


@functools.cache
def drawn(config: Config, std: float = 0.2, seed: int = 0) -> Params:
    """A float32 model with normal matrices of this std, and norms and biases off their usual 1 and 0."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in parameter_shapes(config).items():
        x = rng.normal(0.0, std if len(shape) == 2 else 0.1, shape)
        if len(shape) == 1 and name.endswith(".weight"):
            x += 1.0
        arrays[name] = x.astype(np.float32)
    return Params(arrays, config)


def alone(config: Config, row: Any) -> np.ndarray:
    """The logits (t, n) of one row by itself, in float64 on NumPy."""
    return tinyxp.forward(filled(config), [list(row)])[0]


def padded(rows: list[list[int]], lefts: list[int], width: int, pads: Any) -> tuple[np.ndarray, np.ndarray]:
    """ids and mask (b, width), each row after so many columns of padding."""
    ids, mask = np.array(pads, dtype=np.int64), np.zeros((len(rows), width), dtype=bool)
    for r, (row, left) in enumerate(zip(rows, lefts, strict=True)):
        ids[r, left : left + len(row)] = row
        mask[r, left : left + len(row)] = True
    return ids, mask
