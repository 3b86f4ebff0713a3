"""tinyxp's own decoder as a subject: its source, or a changed copy, on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import GPT2, Config
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.shapes import parameter_shapes
from tinyxp.testing.draws import Draw
from tinyxp.testing.strategies import SCALINGS, Range, configs, random_arrays, seeds, token_ids
from tinyxp.testing.subjects.base import Subject

POOL: tuple[Config, ...] = (
    Config(vocab_size=7, n_layers=1, d_model=6, d_ff=5, n_heads=2, n_kv_heads=1, head_dim=4),
    Config(**GPT2, vocab_size=5, max_seq_len=12, n_layers=2, d_model=6, n_heads=2, n_kv_heads=2, d_ff=7),
    Config(
        **GPT2 | {"mlp": "gelu", "tie_embeddings": False},
        vocab_size=6, max_seq_len=12, n_layers=1, d_model=6, n_heads=2, n_kv_heads=2, head_dim=3, d_ff=4,
        norm_eps=0.1,
    ),
    Config(
        vocab_size=9, n_layers=2, d_model=12, n_heads=6, n_kv_heads=2, head_dim=6, d_ff=3, norm_eps=1e-2,
        tie_embeddings=True, attn_bias=True, rope_theta=100.0, rope_scaling=SCALINGS[1],
    ),
    Config(
        vocab_size=6, n_layers=1, d_model=9, n_heads=4, n_kv_heads=2, head_dim=2, d_ff=6, norm="layer",
        attn_out_bias=True, mlp_bias=True, head_bias=True, mlp="relu2", rope_scaling=SCALINGS[0],
    ),
)  # fmt: skip
"""The configs that pooled subjects run on: every block choice, GQA, MQA and MHA."""


class Modules(NamedTuple):
    """The modules that are judged: tinyxp's own, or fresh copies of them with a change."""

    ops: ModuleType
    rope: ModuleType
    shapes: ModuleType
    initialization: ModuleType
    joint: ModuleType
    cache: ModuleType
    model: ModuleType
    tracing: ModuleType
    sampling: ModuleType
    decoding: ModuleType
    engine: ModuleType
    generation: ModuleType


OURS = Modules(*(import_module(f"tinyxp.{name}") for name in Modules._fields))


@dataclass(frozen=True, eq=False)
class Decoder(Subject):
    """tinyxp's source, or a changed copy of it, on one backend."""

    backend: Backend = field(kw_only=True)
    modules: Modules = field(kw_only=True, default=OURS)
    kernels: Mapping[str, Callable[..., Any]] = field(kw_only=True, default_factory=dict)
    _compiled: dict[Any, Callable[..., Any]] = field(default_factory=dict, repr=False)

    @contextmanager
    def active(self) -> Iterator[None]:
        with self.backend.float64():
            yield

    @property
    def ops(self) -> Any:
        """Return the operations that are judged: those of the modules, some replaced by kernels."""
        return SimpleNamespace(**{**vars(self.modules.ops), **self.kernels})

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """Convert a NumPy array to a new array of the backend; return anything else unchanged.

        Floats are converted to ``dtype``, by default the subject's; integers to the backend's index dtype.
        """
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype.kind == "f":
            return self.backend.from_numpy(x.copy(), dtype=dtype or self.dtype)
        return self.backend.from_numpy(
            x.copy() if x.dtype.kind == "b" else x.astype(self.backend.index_dtype)
        )

    def host(self, x: Any) -> Any:
        """Convert arrays, and tuples and mappings of them, to NumPy."""
        if isinstance(x, Mapping):
            return {name: self.host(value) for name, value in x.items()}
        if isinstance(x, (tuple, list)):
            return tuple(self.host(value) for value in x)
        return self.backend.to_numpy(x) if self.backend.is_array(x) else x

    def compiled(self, f: Callable[..., Any], **static: Any) -> Callable[..., Any]:
        """Return f with these arguments bound, compiled once if the backend is not eager."""
        key = (f, *sorted(static.items()))
        if key not in self._compiled:
            bound = partial(f, **static)
            self._compiled[key] = bound if self.backend.eager else self.backend.jit(bound)
        return self._compiled[key]

    def apply(self, f: Callable[..., Any], *args: Any, dtype: str | None = None, **static: Any) -> Any:
        """Return f(ops, xp, *args, **static), converting NumPy arguments to arrays of the backend."""

        def bound(*arrays: Any) -> Any:
            return f(self.ops, self.backend.xp, *arrays, **static)

        key = ("apply", f, *sorted(static.items()))
        if key not in self._compiled:
            self._compiled[key] = bound if self.backend.eager else self.backend.jit(bound)
        return self._compiled[key](*(self.array(x, dtype) for x in args))

    def run(self, f: Callable[..., Any], *args: Any, dtype: str | None = None, **static: Any) -> Any:
        """Return f(ops, xp, *args, **static) as NumPy arrays."""
        return self.host(self.apply(f, *args, dtype=dtype, **static))

    def model(self, draw: Draw, **fixed: Any) -> Model:
        config = draw("config", self.configs(**fixed))
        return self.build(config, random_arrays(config, draw("seed", seeds())))

    def configs(self, **fixed: Any) -> st.SearchStrategy[Config]:
        """Return a strategy for configs with these fields, from the pool if pooled."""
        if not self.pooled:
            return configs(**fixed)
        fitting = [c for c in POOL if all(getattr(c, name, value) == value for name, value in fixed.items())]
        return st.sampled_from(fitting)

    def build(self, config: Config, arrays: Mapping[str, np.ndarray], dtype: str | None = None) -> Model:
        """Return the model of these weights in the subject's library and dtype."""
        return Model(self, config, dict(arrays), dtype or self.dtype)


@dataclass(frozen=True, eq=False)
class Model:
    """One model of a Decoder; arguments and results are NumPy arrays."""

    subject: Decoder
    config: Config
    arrays: dict[str, np.ndarray]  # in float64
    dtype: str

    def __post_init__(self) -> None:
        arrays = {name: self.subject.array(x, self.dtype) for name, x in self.arrays.items()}
        object.__setattr__(self, "params", Params(arrays, self.config))

    params: Params = field(init=False)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_seq_len(self) -> int:
        return self.config.max_seq_len

    def ids(self, draw: Draw, *, rows: Range = (1, 3), columns: Range = (1, 6)) -> np.ndarray:
        """Draw ids (b, t)."""
        return np.asarray(draw("ids", token_ids(self, **self.subject.shape(rows, columns))))

    def but(self, *, config: Config | None = None, **changes: np.ndarray) -> Model:
        """Return the model with some arrays replaced; arrays that the config does not have are dropped."""
        config = config or self.config
        arrays = {**self.arrays, **changes}
        return self.subject.build(
            config, {name: arrays[name] for name in parameter_shapes(config)}, self.dtype
        )

    def forward(self, ids: Any, *, mask: Any = None, positions: Any = None) -> np.ndarray:
        """Return logits (b, t, n)."""
        f = self.subject.modules.model.forward
        return np.asarray(self._call(f, ids, mask=mask, positions=positions))

    def trace(self, ids: Any, *, mask: Any = None, positions: Any = None) -> dict[str, np.ndarray]:
        """Return every intermediate value by its trace point."""
        f = self.subject.modules.tracing.trace
        return dict(self._call(f, ids, mask=mask, positions=positions))

    def loss(self, ids: Any, targets: Any, *, mask: Any = None) -> float:
        """Return the mean cross-entropy in nats."""
        return float(self._call(self.subject.modules.model.loss, ids, np.asarray(targets), mask=mask))

    def gradients(self, ids: Any, targets: Any, *, mask: Any = None) -> dict[str, np.ndarray]:
        """Return the gradient of the loss with respect to every parameter."""
        f = self.subject.modules.model.loss
        both = self.subject._compiled.setdefault(
            ("gradients", f), self._jitted(self.subject.backend.value_and_grad(f))
        )
        arrays = [self.subject.array(np.asarray(x)) for x in (ids, targets)]
        extra = {} if mask is None else {"mask": self.subject.array(np.asarray(mask))}
        return self.subject.host(both(self.params, *arrays, **extra)[1])  # type: ignore[no-any-return]

    def _jitted(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return f if self.subject.backend.eager else self.subject.backend.jit(f)

    def _call(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arrays = [self.subject.array(np.asarray(x)) for x in args]
        named = {k: self.subject.array(np.asarray(x)) for k, x in kwargs.items() if x is not None}
        return self.subject.host(self.subject.compiled(f, **self._kernels())(self.params, *arrays, **named))

    def _kernels(self) -> dict[str, Any]:
        """Return the keyword that passes the subject's kernels, if it has some."""
        kernels = self.subject.kernels
        return {"kernels": self.subject.modules.ops.Kernels(**kernels)} if kernels else {}

    def new_cache(self, rows: int, length: int) -> Any:
        """Return an empty cache."""
        return self.subject.modules.cache.new_cache(self.params, rows, length)

    def extend(
        self, ids: Any, cache: Any, *, mask: Any = None, positions: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Return logits (b, t, n) of further columns, and the cache that contains them."""
        f = self.subject.modules.model.extend
        named = {
            k: self.subject.array(np.asarray(x))
            for k, x in {"mask": mask, "positions": positions}.items()
            if x is not None
        }
        array = self.subject.array(np.asarray(ids))
        logits, cache = self.subject.compiled(f, **self._kernels())(self.params, array, cache, **named)
        return self.subject.host(logits), cache

    def generate(self, ids: Any, max_new_tokens: int, **settings: Any) -> np.ndarray:
        """Return the new ids (b, m)."""
        new = self.subject.modules.generation.generate(self.params, ids, max_new_tokens, **settings)
        return np.asarray(self.subject.host(new))
