"""Gradients of the loss, judged by central differences in float64 on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference import IDS, host
from tinyxp import Params, loss

TARGETS = [[1, 4, 1, 5, -100]]
MASK = [[False, True, True, True, True]]


def numeric_gradient(f: Callable[[Params], Any], params: Params, name: str, index: tuple[int, ...]) -> float:
    """The central difference in float64 on NumPy."""

    def at(step: float) -> float:
        x = params[name].copy()
        x[index] += step
        return float(f(Params({**params, name: x}, params.config)))

    return (at(1e-6) - at(-1e-6)) / 2e-6


def check_gradient(grads: Params, exactly: Params, tolerance: float) -> None:
    """A gradient is a Params; it is compared with central differences at two numbers of each parameter."""
    assert isinstance(grads, Params)
    assert grads.config == exactly.config
    rng = np.random.default_rng(0)
    for name, x in exactly.items():
        for _ in range(2):
            index = tuple(int(rng.integers(n)) for n in x.shape)
            numeric = numeric_gradient(lambda p: loss(p, IDS, TARGETS, mask=MASK), exactly, name, index)
            assert abs(float(host(grads[name])[index]) - numeric) <= tolerance, (name, index)
