"""Somebody else's model as a subject: a function from ids to logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Required, TypedDict

import numpy as np

from tinyxp import registry
from tinyxp.checks import as_integer
from tinyxp.registry import Backend
from tinyxp.testing.draws import Draw
from tinyxp.testing.strategies import Range, token_ids
from tinyxp.testing.subjects.base import ROUNDING, Subject


class Interface(TypedDict, total=False):
    """The keywords of ``foreign``: what a function from ids to logits takes."""

    vocab_size: Required[int]
    max_seq_len: Required[int]
    xp: Any
    dtype: str
    mask: bool
    positions: bool
    rotary: bool
    step: Callable[..., Any] | None
    name: str | None


@dataclass(frozen=True, eq=False)
class Foreign(Subject):
    """Somebody else's model: a function from ids to logits, and what else it takes."""

    function: Callable[..., Any] = field(kw_only=True)
    vocab_size: int = field(kw_only=True)
    max_seq_len: int = field(kw_only=True)
    backend: Backend = field(kw_only=True)
    step: Callable[..., Any] | None = field(kw_only=True, default=None)

    def model(self, draw: Draw, **fixed: Any) -> Foreign:
        return self

    def ids(self, draw: Draw, *, rows: Range = (1, 3), columns: Range = (1, 6)) -> np.ndarray:
        """Draw ids (b, t)."""
        return np.asarray(draw("ids", token_ids(self, rows=rows, columns=columns)))

    def forward(self, ids: Any, *, mask: Any = None, positions: Any = None) -> np.ndarray:
        """Return logits (b, t, n)."""
        given = {"mask": mask, "positions": positions}
        arrays = {k: self._array(x) for k, x in given.items() if x is not None}
        return self._logits(self.function(self._array(ids), **arrays), ids)

    def new_cache(self, rows: int, length: int) -> Any:
        """Return the empty cache that ``step`` starts from: None."""
        return None

    def extend(
        self, ids: Any, cache: Any, *, mask: Any = None, positions: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Return logits (b, t, n) of further columns, and the cache that contains them."""
        assert self.step is not None
        arrays = {} if mask is None else {"mask": self._array(mask)}
        logits, cache = self.step(self._array(ids), cache, **arrays)
        return self._logits(logits, ids), cache

    def _array(self, x: Any) -> Any:
        host = np.array(x)
        integers = host.dtype.kind != "b"
        return self.backend.from_numpy(host.astype(self.backend.index_dtype) if integers else host)

    def _logits(self, logits: Any, ids: Any) -> np.ndarray:
        owner = registry.owner_of(logits)
        host = np.asarray(logits) if owner is None else owner.to_numpy(logits)
        expected = (*np.shape(ids), self.vocab_size)
        if host.shape != expected:
            raise AssertionError(f"logits have shape {host.shape}; (batch, time, vocabulary) is {expected}")
        return host


def foreign(
    function: Callable[..., Any],
    *,
    vocab_size: int,
    max_seq_len: int,
    xp: Any = np,
    dtype: str = "float32",
    mask: bool = False,
    positions: bool = False,
    rotary: bool = False,
    step: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Foreign:
    """Return the subject for ``function(ids) -> logits``; ``check_model`` documents the arguments.

    Raise ValueError for arguments that contradict each other.
    """
    if not callable(function) or not (step is None or callable(step)):
        raise ValueError(f"function is {function!r} and step {step!r}; each must be a function")
    if dtype not in ROUNDING:
        raise ValueError(f"dtype is {dtype!r}; known are {', '.join(ROUNDING)}")
    if rotary and not positions:
        raise ValueError("rotary is True, but positions is False: shifts are judged through positions=")
    has = {"mask": mask, "positions": positions, "rotary": rotary, "cache": step is not None}
    backend = registry.backend(xp)
    label = str(name or getattr(function, "__qualname__", type(function).__name__))
    flags = "".join(f", {ability}=True" for ability in ("mask", "positions", "rotary") if has[ability])
    recipe = (
        f"foreign(function, vocab_size={vocab_size}, max_seq_len={max_seq_len}, xp={backend.name!r}, "
        f"dtype={dtype!r}{flags}{', step=step' if step else ''})"
    )
    return Foreign(
        label,
        recipe,
        frozenset(ability for ability, present in has.items() if present),
        dtype,
        function=function,
        vocab_size=as_integer("vocab_size", vocab_size, low=1),
        max_seq_len=as_integer("max_seq_len", max_seq_len, low=1),
        backend=backend,
        step=step,
    )
