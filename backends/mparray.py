"""mparray: arbitrary-precision arrays on mpmath, slow and exact."""

from __future__ import annotations

from typing import Any

import mparray as xp
import mpmath
import numpy as np

from tinyxp.registry import Backend


class MPArrayBackend(Backend):
    """Its floating arrays hold mpmath numbers; to_numpy rounds them to float64."""

    def to_numpy(self, x: Any) -> np.ndarray:
        kinds = {"real floating": float, "integral": int, "bool": bool}
        (kind,) = [python for name, python in kinds.items() if xp.isdtype(x.dtype, name)]
        flat = xp.reshape(x, (-1,))
        return np.asarray([kind(flat[i]) for i in range(x.size)], dtype=kind).reshape(x.shape)


backend = MPArrayBackend("mparray", xp)


def digits(count: int) -> Any:
    """Return a context in which arithmetic has ``count`` decimal digits."""
    return mpmath.workdps(count)
