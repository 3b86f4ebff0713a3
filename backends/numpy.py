"""NumPy: eager, on the CPU, without gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxp.registry import Backend


class NumpyBackend(Backend):
    """NumPy's own namespace is a standard one from 2.3 on."""

    def is_array(self, x: object) -> bool:
        return isinstance(x, (np.ndarray, np.generic))  # reductions give scalars


def write_cache(cache: np.ndarray, new: np.ndarray, start: Any, slots: Any, *, xp: Any) -> np.ndarray:
    """``tinyxp.ops.write_cache`` in place."""
    at = int(start)
    cache[:, :, at : at + new.shape[2]] = new
    return cache


backend = NumpyBackend("numpy", np, {"write_cache": write_cache})
