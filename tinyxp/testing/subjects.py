"""The subjects that people name: a backend, its kernels, or a callable from ids to logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.adoption import adopt
from tinyxp.checks import as_integer
from tinyxp.engine import engine_of
from tinyxp.registry import Backend
from tinyxp.testing.law import Draw
from tinyxp.testing.strategies import Range, token_ids
from tinyxp.testing.subject import ABILITIES, OURS, ROUNDING, Decoder, Modules, Subject

PACKAGES = ("jax", "mparray", "tiktoken", "tokenizers", "torch", "transformers")
"""What some laws compare with."""


def subject(name: str, *, dtype: str | None = None, pooled: bool | None = None) -> Decoder:
    """tinyxp's decoder on a backend, such as "jax", or with the backend's kernels: "torch+kernels".

    Any namespace that can be imported and keeps to the standard is one too. ``dtype`` is float64 where the
    library has it, since the smallest faults show there. ``pooled`` keeps to half a dozen shapes: by default
    where the library compiles every new one. Errors as for ``tinyxp.backend``.
    """
    library, plus, what = name.partition("+")
    backend = adopt(library)
    if plus and (what != "kernels" or not engine_of(backend).kernels):
        raise ValueError(f"subject is {name!r}; after '+' may stand 'kernels', where the backend brings some")
    given = {"dtype": dtype, "pooled": pooled}
    recipe = f"subject({name!r}{''.join(f', {k}={v!r}' for k, v in given.items() if v is not None)})"
    return decoder(backend, name=name, recipe=recipe, dtype=dtype, pooled=pooled, with_kernels=bool(plus))


def decoder(
    backend: Backend,
    *,
    name: str,
    recipe: str,
    modules: Modules = OURS,
    dtype: str | None = None,
    pooled: bool | None = None,
    with_kernels: bool = False,
) -> Decoder:
    """tinyxp's source, or a changed copy of it, on a backend."""
    with backend.float64():
        wanted = dtype or next(d for d in ("float64", "float32") if d in backend.dtypes())
        backend.dtype(wanted)
    abilities = set(ABILITIES) | {p for p in PACKAGES if find_spec(p) is not None}
    engine = engine_of(backend)
    if not backend.has_gradients:
        abilities.discard("gradients")
    if not backend.compiles:
        abilities.discard("compiler")
    if len(backend.devices()) < 2:
        abilities.discard("devices")
    if not engine.references:
        abilities.discard("references")
    if with_kernels or not engine.kernels:
        abilities.discard("kernels")
    if with_kernels:
        abilities -= {"values", "trace"}
    return Decoder(
        name,
        recipe,
        frozenset(abilities),
        wanted,
        not backend.eager if pooled is None else pooled,
        backend=backend,
        modules=modules,
        kernels=engine.kernels if with_kernels else {},
    )


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
        """Drawn ids (b, t)."""
        return np.asarray(draw("ids", token_ids(self, rows=rows, columns=columns)))

    def forward(self, ids: Any, *, mask: Any = None, positions: Any = None) -> np.ndarray:
        """Logits (b, t, n)."""
        named = {"mask": mask, "positions": positions}
        there = {k: self._array(x) for k, x in named.items() if x is not None}
        return self._logits(self.function(self._array(ids), **there), ids)

    def new_cache(self, rows: int, length: int) -> Any:
        """The empty cache that ``step`` starts from: None."""
        return None

    def extend(
        self, ids: Any, cache: Any, *, mask: Any = None, positions: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Logits (b, t, n) of more columns, and the cache with them."""
        assert self.step is not None
        named = {k: self._array(x) for k, x in {"mask": mask}.items() if x is not None}
        logits, cache = self.step(self._array(ids), cache, **named)
        return self._logits(logits, ids), cache

    def _array(self, x: Any) -> Any:
        host = np.array(x)
        integers = host.dtype.kind != "b"
        return self.backend.from_numpy(host.astype(self.backend.index_dtype) if integers else host)

    def _logits(self, logits: Any, ids: Any) -> np.ndarray:
        owner = registry.owner_of(logits)
        host = np.asarray(logits) if owner is None else owner.to_numpy(logits)
        wanted = (*np.shape(ids), self.vocab_size)
        if host.shape != wanted:
            raise AssertionError(f"logits have shape {host.shape}; (batch, time, vocabulary) is {wanted}")
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
    """The subject for ``function(ids) -> logits``: see ``check_model``."""
    if not callable(function) or not (step is None or callable(step)):
        raise ValueError(f"function is {function!r} and step {step!r}; each must be a function")
    if dtype not in ROUNDING:
        raise ValueError(f"dtype is {dtype!r}; known are {', '.join(ROUNDING)}")
    if rotary and not positions:
        raise ValueError("rotary is True, but positions is False: shifts are judged through positions=")
    has = {"mask": mask, "positions": positions, "rotary": rotary, "cache": step is not None}
    backend = registry.backend(xp)
    called = str(name or getattr(function, "__qualname__", type(function).__name__))
    flags = "".join(f", {ability}=True" for ability in ("mask", "positions", "rotary") if has[ability])
    recipe = (
        f"foreign(function, vocab_size={vocab_size}, max_seq_len={max_seq_len}, xp={backend.name!r}, "
        f"dtype={dtype!r}{flags}{', step=step' if step else ''})"
    )
    return Foreign(
        called,
        recipe,
        frozenset(ability for ability, present in has.items() if present),
        dtype,
        function=function,
        vocab_size=as_integer("vocab_size", vocab_size, low=1),
        max_seq_len=as_integer("max_seq_len", max_seq_len, low=1),
        backend=backend,
        step=step,
    )
