"""ndonnx: arrays that may be traced into an ONNX graph."""

from __future__ import annotations

from typing import Any

import ndonnx as xp
import numpy as np

from tinyxp.registry import Backend


class NdonnxBackend(Backend):
    """Arrays with values compute at once; those without build a graph."""

    def is_concrete(self, x: Any) -> bool:
        try:
            x.unwrap_numpy()
        except ValueError:
            return False
        return True

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> Any:
        return xp.asarray(x if dtype is None else x.astype(self.dtype(dtype).unwrap_numpy()))

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.unwrap_numpy()

    def device_of(self, x: Any) -> Any:
        return None


backend = NdonnxBackend("ndonnx", xp)
