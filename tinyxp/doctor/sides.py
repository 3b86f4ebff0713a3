"""The two sides of a comparison: a model run here, transformers' own, a recorded trace, or a callable."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.config import Config
from tinyxp.doctor.points import Batch, axes, ordered
from tinyxp.doctor.recorded import Recorded, check_dtype, form
from tinyxp.doctor.truth import Weights
from tinyxp.dtypes import EPSILON, dtype_name
from tinyxp.engine import engine_of
from tinyxp.formats import load, load_config, open_checkpoint
from tinyxp.inputs import as_kernels
from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array

Trace = dict[str, np.ndarray]
Put = Mapping[str, np.ndarray]


@dataclass(eq=False)
class Side:
    """What is compared. ``dtype`` is what it computes in, None until that is known."""

    name: str
    dtype: str | None = None

    @property
    def config(self) -> Config | None:
        """The model's config, where it is known."""
        return None

    @property
    def weights(self) -> Weights | None:
        """The model's weights, where they are at hand, as exact as they are stored."""
        return None

    @property
    def model(self) -> str | None:
        """The path of the model, where there is one: for its tokenizer."""
        return None

    @property
    def batch(self) -> Batch | None:
        """The only ids that this side can answer; None where any will do."""
        return None

    @property
    def can_put(self) -> bool:
        """Whether ``trace`` can replace values on the way."""
        return False

    def spelled(self, dtype: str) -> str:
        """How to say that this side computes in ``dtype``."""
        return f"name it {self.name}@:{dtype}"

    def trace(self, batch: Batch, put: Put | None = None) -> Trace:
        """Every trace point that this side has, on NumPy. ``put`` replaces values: point -> array."""
        raise NotImplementedError


@dataclass(eq=False)
class Model(Side):
    """A checkpoint, or parameters, run by tinyxp on a backend."""

    path: str | None = None
    given: Params | None = None
    backend: Backend = field(default_factory=lambda: registry.backend("numpy"))
    kernels: bool = False
    jit: bool = False

    def __post_init__(self) -> None:
        if self.dtype is not None:
            self.backend.dtype(self.dtype)
        if self.kernels and not engine_of(self.backend).kernels:
            raise ValueError(f"{self.name}: {self.backend.name} brings no kernels")
        if self.jit and not self.backend.compiles:
            raise ValueError(f"{self.name}: {self.backend.name} does not compile")

    @cached_property
    def params(self) -> Params:
        if self.given is not None:
            found = self.given.to(self.backend.xp, dtype=self.dtype)
        else:
            assert self.path is not None
            found = load(self.path, xp=self.backend.xp, dtype=self.dtype)
        self.dtype = dtype_name(found.dtype)
        return found

    @cached_property
    def config(self) -> Config:
        if self.given is not None:
            return self.given.config
        assert self.path is not None
        return load_config(self.path)

    @cached_property
    def weights(self) -> Weights:
        if self.given is not None:
            return Weights.of_params(self.given)
        assert self.path is not None
        ran = EPSILON[dtype_name(self.params.dtype)]
        stored = min(EPSILON[weight.kind] for weight in open_checkpoint(self.path).weights().values())
        if ran <= stored:
            return Weights.of_params(self.params)
        return Weights.of_file(Path(self.path))  # exact, where the run's own are rounded

    @property
    def model(self) -> str | None:
        return self.path

    def spelled(self, dtype: str) -> str:
        flags = "+kernels" * self.kernels + "+jit" * self.jit
        return f"name it {self.path or 'MODEL'}@{self.backend.name}{flags}:{dtype}"

    @property
    def can_put(self) -> bool:
        return not self.jit

    def trace(self, batch: Batch, put: Put | None = None) -> Trace:
        params, backend = self.params, self.backend
        kernels = as_kernels(engine_of(backend).kernels if self.kernels else None)
        put = put or {}

        def run(params: Params, ids: Any, mask: Any) -> dict[str, Array]:
            points: dict[str, Array] = {}

            def tap(name: str, x: Array) -> Array:
                points[name] = x if name not in put else self._like(put[name], x)
                return points[name]

            forward(params, ids, mask=mask, kernels=kernels, tap=tap)
            return points

        ids = backend.from_numpy(batch.ids.astype(backend.index_dtype))
        mask = None if batch.mask is None else backend.from_numpy(batch.mask)
        with backend.inference(), np.errstate(all="ignore"):
            found = (backend.jit(run) if self.jit else run)(params, ids, mask)
            return {name: backend.to_numpy(x) for name, x in found.items()}

    def _like(self, x: np.ndarray, other: Array) -> Array:
        return self.backend.from_numpy(np.asarray(x), dtype=dtype_name(other.dtype))


@dataclass(eq=False)
class Transformers(Side):
    """transformers' own model of a checkpoint, in eval mode."""

    path: str = field(kw_only=True)

    @cached_property
    def found(self) -> Any:
        found = import_module("tinyxp.backends.transformers_trace").open_model(Path(self.path), self.dtype)
        self.dtype = dtype_name(found.dtype)
        return found

    @cached_property
    def config(self) -> Config:
        return load_config(self.path)

    @cached_property
    def weights(self) -> Weights:
        return Weights.of_file(Path(self.path))

    @property
    def model(self) -> str:
        return self.path

    @property
    def can_put(self) -> bool:
        return True

    def trace(self, batch: Batch, put: Put | None = None) -> Trace:
        return import_module("tinyxp.backends.transformers_trace").trace(  # type: ignore[no-any-return]
            self.found, batch.ids, mask=batch.mask, put=put
        )


@dataclass(eq=False)
class Record(Side):
    """A trace that was recorded elsewhere."""

    recorded: Recorded = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.recorded.points:
            raise ValueError(f"{self.name}: holds no trace point")
        self.dtype = self.dtype or _common_dtype(self.recorded.points)

    @property
    def batch(self) -> Batch:
        return self.recorded.batch

    def trace(self, batch: Batch, put: Put | None = None) -> Trace:
        return self.recorded.points


@dataclass(eq=False)
class Function(Side):
    """A function of ids (b, t), and of ``mask`` if it takes one, to logits (b, t, n) or to a trace."""

    function: Callable[..., Any] = field(kw_only=True)

    def trace(self, batch: Batch, put: Put | None = None) -> Trace:
        named = self._named(batch)
        try:
            answer = self.function(batch.ids.copy(), **named)
        except (Exception, SystemExit) as error:
            raise ValueError(failure(f"{self.name} raised", error)) from error
        points = answer if isinstance(answer, Mapping) else {"logits": answer}
        if not points:
            raise ValueError(f"{self.name} gave no trace point")
        found = {name: self._host(name, points[name], len(batch.ids)) for name in ordered(points)}
        self.dtype = self.dtype or _common_dtype(found)
        return found

    def _named(self, batch: Batch) -> dict[str, Any]:
        """The mask, where there is padding or the function asks for one; ValueError where it takes other
        arguments, as far as can be told."""
        given = {} if batch.mask is None else {"mask": batch.mask.copy()}
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # not written in Python
            return given
        mask = signature.parameters.get("mask")
        if mask is not None and mask.default is mask.empty:
            given = {"mask": batch.real.copy()}
        takes = mask is not None or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if given and not takes:
            raise ValueError(f"{self.name} takes no mask, and there is padding")
        try:
            signature.bind(None, **given)
        except TypeError as error:
            what = "ids and mask" if given else "ids alone"
            raise ValueError(f"{self.name} takes {signature}; it is called with {what}: {error}") from None
        return given

    def _host(self, name: str, x: Any, rows: int) -> np.ndarray:
        """A point on NumPy. Its columns may be others than those of the ids: that is a fault to be found."""
        owner = registry.owner_of(x)
        if owner is None:
            registry.load_imported()
            owner = registry.owner_of(x)
        try:
            host = np.asarray(x) if owner is None else owner.to_numpy(x)
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(failure(f"{self.name} gave {name} that is no array:", error)) from None
        if self.dtype is None and str(getattr(x, "dtype", "")).endswith("bfloat16"):
            self.dtype = "bfloat16"
        host = check_dtype(name, host)
        wanted = len(axes(name))
        host = host[None] if host.ndim == wanted - 1 and rows == 1 else host
        if host.ndim != wanted or len(host) != rows or 0 in host.shape:
            raise ValueError(
                f"{self.name} gave {name} of shape {host.shape}; {form(name)} is wanted, with {rows} rows"
            )
        return host


def failure(what: str, error: BaseException) -> str:
    """What went wrong in somebody else's code, in a line, and where."""
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
    said = " ".join(str(error).split())
    return f"{what} {type(error).__name__}{': ' if said else ''}{said}{place}"


def _common_dtype(points: Trace) -> str:
    """The narrowest dtype among the points."""
    return min((x.dtype for x in points.values()), key=lambda dtype: dtype.itemsize).name


def as_side(given: Any, name: str = "") -> Side:
    """A side from what people have: a Side, a specification (see ``parse``), Params, a trace with its ids
    as ``Recorded``, or a function.
    """
    from tinyxp.doctor.specs import parse

    if isinstance(given, Side):
        return given
    if isinstance(given, Params):
        backend = given.backend
        return Model(name or f"params@{backend.name}", dtype_name(given.dtype), given=given, backend=backend)
    if isinstance(given, Recorded):
        return Record(name or "trace", recorded=given)
    if callable(given):
        return Function(name or getattr(given, "__qualname__", type(given).__name__), function=given)
    if isinstance(given, (str, Path)):
        return parse(str(given))
    raise ValueError(
        f"a side is {given!r}; it must be a specification such as 'MODEL@jax:float32', Params, a Recorded "
        "trace or a function"
    )
