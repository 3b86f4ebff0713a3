"""What the tests of training share: two tiny models, windows to learn from, whole runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, LLAMA_CONFIG, drawn, host, libraries
from tinyxp import Config, Params
from tinyxp.text.windows import cut_windows, split_stream
from tinyxp.train import Recipe, Report, fit

SHAPES = {
    "gpt2": GPT2_CONFIG,
    "llama": LLAMA_CONFIG,
    "llama-tied": replace(LLAMA_CONFIG, tie_embeddings=True),
}
LIBRARIES = libraries("torch", "jax")
STREAM = np.random.default_rng(0).integers(0, 11, 400)
TRAIN, HELD_OUT = (cut_windows(part, 8) for part in split_stream(STREAM, 0.2))


def model(config: Config, library: str, dtype: str = "float32") -> Params:
    """Weights of the scale that training gives, as arrays of a library."""
    pytest.importorskip(library)
    return drawn(config).to(tinyxp.backend(library).xp, dtype=dtype)


def run(config: Config, library: str, recipe: Recipe, **more: Any) -> list[Report]:
    return list(fit(model(config, library), TRAIN, HELD_OUT, recipe, **more))


def on_host(arrays: Any) -> dict[str, np.ndarray]:
    return {name: host(x) for name, x in arrays.items()}


def assert_same(found: Any, expected: Any) -> None:
    """Bit for bit."""
    theirs = on_host(expected)
    for name, x in on_host(found).items():
        np.testing.assert_array_equal(x, theirs[name], err_msg=name)
