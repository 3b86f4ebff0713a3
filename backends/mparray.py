"""mparray: arbitrary-precision arrays on mpmath, slow and exact."""

from __future__ import annotations

from typing import Any

import mparray as xp
import numpy as np

from tinyxp.registry import Backend


class MPArrayBackend(Backend):
    """Its floating arrays hold mpmath numbers; to_numpy rounds them to float64."""

    def is_array(self, x: object) -> bool:
        return isinstance(x, xp.MPArray)

    def to_numpy(self, x: Any) -> np.ndarray:
        if not xp.isdtype(x.dtype, "real floating"):
            return np.asarray(x)
        flat = xp.reshape(x, (-1,))
        return np.asarray([float(flat[i]) for i in range(x.size)]).reshape(x.shape)


backend = MPArrayBackend("mparray", xp)
