"""What every subject has: a name, abilities, a dtype, and comparisons within the rounding of that dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.references import FINDERS
from tinyxp.testing.strategies import Range

ROUNDING = {"float64": 1e-9, "float32": 2e-4, "float16": 0.05, "bfloat16": 0.3}
"""How far two correct computations may differ, relative to the largest value, in each dtype.

Each is many epsilons: a norm of a nearly constant row magnifies rounding by up to 1/sqrt(eps), and a model
has several norms. No fault that people report is smaller than this in float64."""

ABILITIES = {
    "ops": "its operations are not tinyxp's",
    "params": "its parameters are not tinyxp's",
    "trace": "its intermediate values cannot be recorded",
    "mask": "it takes no mask",
    "positions": "it takes no positions",
    "rotary": "its positions are not known to be rotary",
    "cache": "it has no cache",
    "values": "its cache is written in place",
    "generate": "it does not generate",
    "gradients": "its library has no gradients",
    "compiler": "its library does not compile",
    "kernels": "its backend has no kernels, or is judged with them already",
    "devices": "its library has only one device here",
    "references": "its library has no implementations of these operations to compare with",
    "files": "it is not a model that is saved",
}
"""What a law may need of a subject -> why a subject may lack it. A need may also be a name in
``references.FINDERS``, or the import name of a package."""

POOL_ROWS, POOL_COLUMNS = 2, 5
"""The one shape of ids that a pooled subject draws."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is judged, and what it can do."""

    name: str
    recipe: str  # an expression that builds it again
    abilities: frozenset[str]
    dtype: str  # what it computes in
    pooled: bool = False  # whether each new shape costs a compilation
    recipe_module: str = field(
        default="tinyxp.testing", kw_only=True
    )  # where the recipe's first name comes from

    def lacks(self, needs: frozenset[str]) -> str:
        """Return why a law with these needs does not apply, or an empty string if it does."""
        for need in sorted(needs - self.abilities):
            if need in ABILITIES:
                return ABILITIES[need]
            if need in FINDERS:
                find, reason = FINDERS[need]
                if not find(self):
                    return reason
            elif find_spec(need) is None:
                return f"{need} is not installed"
        return ""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Return a context in which the subject computes in its dtype."""
        yield

    def model(self, draw: Draw, **fixed: Any) -> Any:
        """Draw a model of this subject: a config, with ``fixed`` fields, and the seed of its weights."""
        raise NotImplementedError

    def columns(self, low: int, high: int) -> st.SearchStrategy[int]:
        """Return a strategy for a number of columns: low to high, or only the middle one if pooled."""
        return st.just((low + high + 1) // 2) if self.pooled else st.integers(low, high)

    def shape(self, rows: Range, columns: Range) -> dict[str, Range]:
        """Return keywords of ``token_ids``: the given ranges, or the one shape of the pool."""
        if self.pooled:
            return {"rows": (POOL_ROWS, POOL_ROWS), "columns": (POOL_COLUMNS, POOL_COLUMNS)}
        return {"rows": rows, "columns": columns}

    def close(self, found: Any, expected: Any, what: str = "", *, within: float | None = None) -> None:
        """Raise AssertionError naming the element with the largest difference, if it exceeds rounding.

        ``within`` replaces the rounding of the subject's dtype. Both are relative to the largest expected
        value.
        """
        found, expected = _same_shape(found, expected, what)
        if not found.size:
            return
        scale = max(1.0, float(np.max(np.abs(expected))))
        allowed = scale * (ROUNDING[self.dtype] if within is None else within)
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference)))
        index = tuple(int(i) for i in np.unravel_index(worst, difference.shape))
        if not difference[index] <= allowed:
            raise AssertionError(
                f"{what} at {index} is {float(found[index])!r}, expected {float(expected[index])!r}: "
                f"difference {float(difference[index]):.2g}, allowed {allowed:.2g}"
            )

    def equal(self, found: Any, expected: Any, what: str = "") -> None:
        """Raise AssertionError naming the first element that differs at all."""
        found, expected = _same_shape(found, expected, what)
        differing = np.argwhere(found != expected)
        if len(differing):
            index = tuple(int(i) for i in differing[0])
            raise AssertionError(f"{what} at {index} is {found[index]}, expected exactly {expected[index]}")


def _same_shape(found: Any, expected: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        raise AssertionError(f"{what} has shape {found.shape}, expected {expected.shape}")
    return found, expected
