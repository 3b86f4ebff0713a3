"""The decoder that generation drives: it owns a cache, so its backend may write in place and compile."""

from __future__ import annotations

import numpy as np

from tinyxp.cache import new_cache
from tinyxp.model import extend
from tinyxp.params import Params


class Decoder:
    """Feeds columns of ids to a model and returns each row's logits after its last real token.

    This one runs ``extend`` with the backend's kernels; a backend that compiles has its own.
    """

    def __init__(self, params: Params, batch: int, length: int) -> None:
        self.params = params
        self.cache = new_cache(params, batch, length)

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """ids (b, t), mask (b, t) True on real tokens -> logits (b, n), on NumPy."""
        kernels = self.params.backend.kernels
        logits, self.cache = extend(self.params, ids, self.cache, mask=mask, kernels=kernels, last=True)
        return self.params.backend.to_numpy(logits)[:, 0, :]
