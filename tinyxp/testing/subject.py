"""What laws judge: this decoder on some library, a changed copy of it, or somebody else's model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxp import (
    cache,
    decoding,
    engine,
    generation,
    joint,
    model,
    ops,
    params,
    rope,
    sampling,
    shapes,
    tracing,
)
from tinyxp.config import GPT2, Config
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.testing.law import Draw
from tinyxp.testing.strategies import SCALINGS, Range, configs, random_arrays, seeds, token_ids

ROUNDING = {"float64": 1e-9, "float32": 2e-4, "float16": 0.05, "bfloat16": 0.3}
"""How far two right computations may part, relative to the largest value, in each dtype: many of its
epsilons, since a norm of a row that is nearly constant magnifies rounding by up to 1/sqrt(eps), once a norm.
A fault that is smaller in float64 is none that anybody reports."""

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
    "kernels": "its backend brings no kernels, or is judged by them already",
    "devices": "its library has one device here",
    "references": "its library has no forms of these operations of its own",
    "files": "it is no model that is saved",
}
"""What a law may need of a subject -> why a subject lacks it. Besides: the import name of any package."""

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
        attn_out_bias=True, mlp_bias=True, rope_scaling=SCALINGS[0],
    ),
)  # fmt: skip
"""The shapes that laws run on where a new one costs a compilation: every block choice, GQA, MQA and MHA."""

POOL_ROWS, POOL_COLUMNS = 2, 5


class Modules(NamedTuple):
    """The source that is judged: tinyxp's own modules, or fresh copies of them with a change."""

    ops: ModuleType
    cache: ModuleType
    model: ModuleType
    sampling: ModuleType
    decoding: ModuleType
    generation: ModuleType
    tracing: ModuleType
    params: ModuleType
    joint: ModuleType
    engine: ModuleType
    rope: ModuleType


OURS = Modules(ops, cache, model, sampling, decoding, generation, tracing, params, joint, engine, rope)


@dataclass(frozen=True, eq=False)
class Subject:
    """What is judged, and what it can do."""

    name: str
    recipe: str  # the source that makes it again
    abilities: frozenset[str]
    dtype: str  # what it computes in
    pooled: bool = False  # whether each new shape is dear

    def lacks(self, needs: frozenset[str]) -> str:
        """Why a law with these needs does not apply; empty where it does."""
        for need in sorted(needs - self.abilities):
            if need in ABILITIES:
                return ABILITIES[need]
            if find_spec(need) is None:
                return f"{need} is not installed"
        return ""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within it the subject computes in its dtype."""
        yield

    def model(self, draw: Draw, **fixed: Any) -> Any:
        """A model of this subject, drawn: its config, with ``fixed`` fields, and the seed of its weights."""
        raise NotImplementedError

    def columns(self, low: int, high: int) -> st.SearchStrategy[int]:
        """A number of columns from low to high; always the middle one where each is dear."""
        return st.just((low + high + 1) // 2) if self.pooled else st.integers(low, high)

    def shape(self, rows: Range, columns: Range) -> dict[str, Range]:
        """Keywords of ``token_ids``: the given ranges, or the one shape of the pool."""
        if self.pooled:
            return {"rows": (POOL_ROWS, POOL_ROWS), "columns": (POOL_COLUMNS, POOL_COLUMNS)}
        return {"rows": rows, "columns": columns}

    def close(self, found: Any, expected: Any, what: str = "", *, within: float | None = None) -> None:
        """Raises AssertionError naming the worst element that is farther from expected than rounding."""
        found, expected = np.asarray(found), np.asarray(expected)
        if found.shape != expected.shape:
            raise AssertionError(f"{what} has shape {found.shape}, expected {expected.shape}")
        if not found.size:
            return
        scale = max(1.0, float(np.max(np.abs(expected))))
        allowed = scale * (ROUNDING[self.dtype] if within is None else within)
        apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        worst = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
        if not apart[worst] <= allowed:
            place = tuple(int(i) for i in worst)
            raise AssertionError(
                f"{what} at {place} is {float(found[worst])!r}, expected {float(expected[worst])!r}: "
                f"{float(apart[worst]):.2g} apart, allowed {allowed:.2g}"
            )

    def equal(self, found: Any, expected: Any, what: str = "") -> None:
        """Raises AssertionError naming the first element that differs at all."""
        found, expected = np.asarray(found), np.asarray(expected)
        if found.shape != expected.shape:
            raise AssertionError(f"{what} has shape {found.shape}, expected {expected.shape}")
        differs = np.argwhere(found != expected)
        if len(differs):
            place = tuple(int(i) for i in differs[0])
            raise AssertionError(f"{what} at {place} is {found[place]}, expected exactly {expected[place]}")


@dataclass(frozen=True, eq=False)
class Decoder(Subject):
    """tinyxp's own source, or a changed copy, on one backend."""

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
        """The operations that are judged: those of the modules, and kernels in the place of some."""
        return SimpleNamespace(**{**vars(self.modules.ops), **self.kernels})

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """NumPy -> a fresh array of the backend: floats in ``dtype`` or the subject's, integers as it indexes
        with them; anything that is no NumPy array as it is."""
        if not isinstance(x, np.ndarray):
            return x
        if x.dtype.kind == "f":
            return self.backend.from_numpy(x.copy(), dtype=dtype or self.dtype)
        return self.backend.from_numpy(
            x.copy() if x.dtype.kind == "b" else x.astype(self.backend.index_dtype)
        )

    def host(self, x: Any) -> Any:
        """Arrays, and tuples and mappings of them, on NumPy."""
        if isinstance(x, Mapping):
            return {name: self.host(value) for name, value in x.items()}
        if isinstance(x, (tuple, list)):
            return tuple(self.host(value) for value in x)
        return self.backend.to_numpy(x) if self.backend.is_array(x) else x

    def compiled(self, f: Callable[..., Any], **static: Any) -> Callable[..., Any]:
        """f with these arguments bound: compiled once where single operations are dear, else as it is."""
        key = (f, *sorted(static.items()))
        if key not in self._compiled:
            bound = partial(f, **static)
            self._compiled[key] = bound if self.backend.eager else self.backend.jit(bound)
        return self._compiled[key]

    def apply(self, f: Callable[..., Any], *args: Any, dtype: str | None = None, **static: Any) -> Any:
        """f(ops, xp, *args, **static) with NumPy arguments as arrays of the backend, and its arrays back."""

        def bound(*arrays: Any) -> Any:
            return f(self.ops, self.backend.xp, *arrays, **static)

        key = ("apply", f, *sorted(static.items()))
        if key not in self._compiled:
            self._compiled[key] = bound if self.backend.eager else self.backend.jit(bound)
        return self._compiled[key](*(self.array(x, dtype) for x in args))

    def run(self, f: Callable[..., Any], *args: Any, dtype: str | None = None, **static: Any) -> Any:
        """The same, with the results on NumPy."""
        return self.host(self.apply(f, *args, dtype=dtype, **static))

    def model(self, draw: Draw, **fixed: Any) -> Model:
        config = draw("config", self.configs(**fixed))
        return self.build(config, random_arrays(config, draw("seed", seeds())))

    def configs(self, **fixed: Any) -> st.SearchStrategy[Config]:
        """Configs with these fields: of the pool where a shape is dear."""
        if not self.pooled:
            return configs(**fixed)
        fitting = [c for c in POOL if all(getattr(c, name, value) == value for name, value in fixed.items())]
        return st.sampled_from(fitting)

    def build(self, config: Config, arrays: Mapping[str, np.ndarray], dtype: str | None = None) -> Model:
        """The model of these weights in the subject's library and dtype."""
        return Model(self, config, dict(arrays), dtype or self.dtype)


@dataclass(frozen=True, eq=False)
class Model:
    """One model of a Decoder: NumPy goes in, NumPy comes out."""

    subject: Decoder
    config: Config
    arrays: dict[str, np.ndarray]  # in float64
    dtype: str

    def __post_init__(self) -> None:
        there = {name: self.subject.array(x, self.dtype) for name, x in self.arrays.items()}
        object.__setattr__(self, "params", Params(there, self.config))

    params: Params = field(init=False)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_seq_len(self) -> int:
        return self.config.max_seq_len

    def ids(self, draw: Draw, *, rows: Range = (1, 3), columns: Range = (1, 6)) -> np.ndarray:
        """Drawn ids (b, t)."""
        return np.asarray(draw("ids", token_ids(self, **self.subject.shape(rows, columns))))

    def but(self, *, config: Config | None = None, **changes: np.ndarray) -> Model:
        """The model with other arrays: ``but(**{"head.weight": x})``; what the config lacks is dropped."""
        config = config or self.config
        arrays = {**self.arrays, **changes}
        return self.subject.build(
            config, {name: arrays[name] for name in shapes.parameter_shapes(config)}, self.dtype
        )

    def forward(self, ids: Any, *, mask: Any = None, positions: Any = None) -> np.ndarray:
        """Logits (b, t, n)."""
        f = self.subject.modules.model.forward
        return np.asarray(self._call(f, ids, mask=mask, positions=positions))

    def trace(self, ids: Any, *, mask: Any = None, positions: Any = None) -> dict[str, np.ndarray]:
        """Every value on the way."""
        f = self.subject.modules.tracing.trace
        return dict(self._call(f, ids, mask=mask, positions=positions))

    def loss(self, ids: Any, targets: Any, *, mask: Any = None) -> float:
        """The mean cross-entropy in nats."""
        return float(self._call(self.subject.modules.model.loss, ids, np.asarray(targets), mask=mask))

    def gradients(self, ids: Any, targets: Any, *, mask: Any = None) -> dict[str, np.ndarray]:
        """The gradient of the loss by every parameter."""
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
        there = [self.subject.array(np.asarray(x)) for x in args]
        named = {k: self.subject.array(np.asarray(x)) for k, x in kwargs.items() if x is not None}
        return self.subject.host(self.subject.compiled(f, **self._kernels())(self.params, *there, **named))

    def _kernels(self) -> dict[str, Any]:
        """The keyword that hands on the subject's kernels, where it has some."""
        kernels = self.subject.kernels
        return {"kernels": self.subject.modules.ops.Kernels(**kernels)} if kernels else {}

    def new_cache(self, rows: int, length: int) -> Any:
        """An empty cache."""
        return self.subject.modules.cache.new_cache(self.params, rows, length)

    def extend(
        self, ids: Any, cache: Any, *, mask: Any = None, positions: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Logits (b, t, n) of more columns, and the cache with them."""
        f = self.subject.modules.model.extend
        named = {
            k: self.subject.array(np.asarray(x))
            for k, x in {"mask": mask, "positions": positions}.items()
            if x is not None
        }
        there = self.subject.array(np.asarray(ids))
        logits, cache = self.subject.compiled(f, **self._kernels())(self.params, there, cache, **named)
        return self.subject.host(logits), cache

    def generate(self, ids: Any, max_new_tokens: int, **settings: Any) -> np.ndarray:
        """The new ids (b, m)."""
        found = self.subject.modules.generation.generate(self.params, ids, max_new_tokens, **settings)
        return np.asarray(self.subject.host(found))
