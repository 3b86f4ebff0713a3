"""One forward pass over one sequence, as a page or a terminal shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tinyxp import ops
from tinyxp.params import Params
from tinyxp.typing import Array

MAX_POSITIONS = 64
"""How many positions a page shows at most: the last ones."""


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass over one sequence: ``points`` as ``tinyxp.trace(params, [ids])`` returns them.

    ``describe`` returns the text of an id as one line of visible characters.
    """

    params: Params
    ids: tuple[int, ...]
    points: Mapping[str, Array]
    describe: Callable[[int], str]

    @property
    def shown(self) -> range:
        """The positions that are shown."""
        return range(max(0, len(self.ids) - MAX_POSITIONS), len(self.ids))

    def token(self, i: int) -> str:
        """Return the text of the token at position i."""
        return self.describe(self.ids[i])

    def host(self, x: Array) -> np.ndarray:
        """Convert an array (1, ...) of the parameters' library to float64 on NumPy (...)."""
        values: np.ndarray = self.params.backend.to_numpy(x)[0].astype(np.float64)
        return values

    def point(self, name: str) -> np.ndarray:
        """Return a trace point in float64 on NumPy, without the batch axis."""
        return self.host(self.points[name])


def first_not_finite(run: ForwardPass) -> str | None:
    """Return the name of the first trace point with a NaN or an infinity, or None."""
    return next((name for name in run.points if not np.isfinite(run.point(name)).all()), None)


def next_tokens(run: ForwardPass, count: int = 5) -> list[tuple[int, float]]:
    """Return the most likely next ids and their probabilities; equal ones in the order of their ids."""
    last = run.points["logits"][:, len(run.ids) - 1, :]
    p = run.host(ops.softmax(ops.widen(last, xp=run.params.xp), xp=run.params.xp))
    best = np.argsort(-p, kind="stable")[:count]
    return [(int(i), float(p[i])) for i in best]
