"""The values that a law draws, by name, and their Python source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import Config, RopeScaling

T = TypeVar("T")


class Draw:
    """Draws the values of one case by name and records them: a counterexample is a plain dictionary."""

    def __init__(self, source: Callable[[str, st.SearchStrategy[Any]], Any]) -> None:
        self.values: dict[str, Any] = {}
        self._source = source

    def __call__(self, name: str, strategy: st.SearchStrategy[T]) -> T:
        """Return a value of ``strategy``, or the replayed value of this name."""
        value: T = self._source(name, strategy)
        self.values[name] = value
        return value


def as_source(value: Any) -> str:
    """Return short Python source that evaluates to a drawn value."""
    if isinstance(value, Config):
        defaults = {**vars(Config()), "head_dim": value.d_model / value.n_heads}
        changed = {name: x for name, x in vars(value).items() if x != defaults[name]}
        return f"Config({', '.join(f'{name}={as_source(x)}' for name, x in changed.items())})"
    if isinstance(value, RopeScaling):
        return as_source(vars(value))
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r}, {value.dtype.name!r})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {as_source(v)}" for k, v in value.items()) + "}"
    return repr(value)
