"""The sides of a comparison: a model run here, a plugin's own model, or a recorded trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp import plugins, registry
from tinyxp.config import Config
from tinyxp.doctor.points import sort_points
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.traces import Batch, Recorded, Trace, narrowest_dtype
from tinyxp.dtypes import EPSILON, dtype_name
from tinyxp.engine import engine_of
from tinyxp.formats import load, load_config, open_checkpoint
from tinyxp.generation import generate
from tinyxp.inputs import as_kernels
from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array

Patch = Mapping[str, np.ndarray]
"""Trace point -> the array to continue the run with."""


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison. ``dtype`` is the requested one; None takes the side's own."""

    name: str
    dtype: str | None = None

    @property
    def config(self) -> Config | None:
        """The model's config, if it is known."""
        return None

    @property
    def weights(self) -> WeightSource | None:
        """The model's weights as exact as they are stored, if they are available."""
        return None

    @property
    def params(self) -> Params | None:
        """The parameters as they run, if tinyxp runs them."""
        return None

    @property
    def model(self) -> str | None:
        """The model's path, if there is one: its tokenizer is there too."""
        return None

    @property
    def batch(self) -> Batch | None:
        """The only input that this side has an answer to; None if it answers any."""
        return None

    @property
    def reads_checkpoint(self) -> bool:
        """Whether correct code runs the side, so that a fault must be in its weights or config."""
        return False

    @property
    def can_patch(self) -> bool:
        """Whether ``trace`` takes a patch."""
        return False

    @property
    def can_rerun(self) -> bool:
        """Whether the side computes, so that a second run can be compared with the first."""
        return self.batch is None

    def suggest_dtype(self, dtype: str) -> str:
        """Say how to request ``dtype`` of this side."""
        return f"name it {self.name}@:{dtype}"

    def trace(self, batch: Batch, patch: Patch | None = None) -> Trace:
        """Run the side and return its trace points on NumPy; ``patch`` replaces values on the way."""
        raise NotImplementedError

    def with_params(self, params: Params) -> Side:
        """Return the side with other parameters, if it has ``params``."""
        raise NotImplementedError

    def generate(self, batch: Batch, count: int) -> np.ndarray:
        """Return ``count`` greedy tokens (b, count) that continue the batch."""
        if not self.can_rerun:
            raise ValueError(f"{self.name} is a recorded trace, which cannot generate")
        start = batch.ids.shape[1]
        for _ in range(count):
            logits = self.trace(batch).points.get("logits")
            if logits is None:
                raise ValueError(f"{self.name} gave no logits, without which it cannot generate")
            batch = extend_batch(batch, np.argmax(logits[:, -1:], axis=-1))
        return batch.ids[:, start:]


def extend_batch(batch: Batch, new: np.ndarray) -> Batch:
    """Return the batch with new ids (b, n), all of them real tokens, at the end."""
    ids = np.concatenate([batch.ids, new], axis=1).astype(np.int64)
    mask = batch.mask
    return Batch(ids, None if mask is None else np.concatenate([mask, np.ones(new.shape, bool)], axis=1))


@dataclass(frozen=True, eq=False)
class ModelSide(Side):
    """A checkpoint, or parameters, run by tinyxp on a backend."""

    reads_checkpoint = True
    path: str | None = None
    given: Params | None = None
    backend: Backend = field(default_factory=lambda: registry.backend(np))
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
            return self.given.to(self.backend.xp, dtype=self.dtype)
        return load(self._path, xp=self.backend.xp, dtype=self.dtype)

    @cached_property
    def config(self) -> Config:
        return load_config(self._path) if self.given is None else self.given.config

    @cached_property
    def weights(self) -> WeightSource:
        if self.given is not None:
            return WeightSource.of_params(self.given)
        stored = min(EPSILON[weight.kind] for weight in open_checkpoint(self._path).weights().values())
        if EPSILON[dtype_name(self.params.dtype)] <= stored:
            return WeightSource.of_params(self.params)
        return WeightSource.of_file(Path(self._path))  # exact; the run's own weights are rounded

    @property
    def model(self) -> str | None:
        return self.path

    @property
    def _path(self) -> str:
        assert self.path is not None
        return self.path

    @property
    def can_patch(self) -> bool:
        return not self.jit

    def suggest_dtype(self, dtype: str) -> str:
        flags = "+kernels" * self.kernels + "+jit" * self.jit
        return f"name it {self.path or 'MODEL'}@{self.backend.name}{flags}:{dtype}"

    def with_params(self, params: Params) -> Side:
        return replace(self, path=None, given=params)

    def generate(self, batch: Batch, count: int) -> np.ndarray:
        return self.backend.to_numpy(generate(self.params, batch.ids, count, mask=batch.mask))

    def trace(self, batch: Batch, patch: Patch | None = None) -> Trace:
        params, backend, patch = self.params, self.backend, patch or {}
        kernels = as_kernels(engine_of(backend).kernels if self.kernels else None)

        def run(params: Params, ids: Any, mask: Any) -> dict[str, Array]:
            points: dict[str, Array] = {}

            def tap(name: str, x: Array) -> Array:
                points[name] = x if name not in patch else self._like(patch[name], x)
                return points[name]

            forward(params, ids, mask=mask, kernels=kernels, tap=tap)
            return points

        ids = backend.from_numpy(batch.ids.astype(backend.index_dtype))
        mask = None if batch.mask is None else backend.from_numpy(batch.mask)
        with backend.inference(), np.errstate(all="ignore"):
            points = (backend.jit(run) if self.jit else run)(params, ids, mask)
            return Trace(
                {name: backend.to_numpy(points[name]) for name in sort_points(points)},
                dtype_name(params.dtype),
            )

    def _like(self, x: np.ndarray, other: Array) -> Array:
        return self.backend.from_numpy(np.asarray(x), dtype=dtype_name(other.dtype))


@dataclass(frozen=True, eq=False)
class PluginSide(Side):
    """Another library's own model of a checkpoint, run by an entry of the group ``tinyxp.sides``.

    The entry is a module (or an object) with ``BACKEND``, the name of the only backend that it runs on,
    ``open_model(path, dtype) -> model``, whose ``dtype`` it keeps, and
    ``trace(model, ids, *, mask, patch) -> points``. tinyxp reads the same checkpoint for the weights.
    """

    reads_checkpoint = can_patch = True
    plugin: str = field(kw_only=True)  # the entry's name
    path: str = field(kw_only=True)

    @cached_property
    def entry(self) -> Any:
        return plugins.load(plugins.SIDES, self.plugin)

    @cached_property
    def opened(self) -> Any:
        return self.entry.open_model(Path(self.path), self.dtype)

    @cached_property
    def config(self) -> Config:
        return load_config(self.path)

    @cached_property
    def weights(self) -> WeightSource:
        return WeightSource.of_file(Path(self.path))

    @property
    def model(self) -> str:
        return self.path

    def trace(self, batch: Batch, patch: Patch | None = None) -> Trace:
        points = self.entry.trace(self.opened, batch.ids, mask=batch.mask, patch=patch)
        return Trace(points, dtype_name(self.opened.dtype))


@dataclass(frozen=True, eq=False)
class RecordedSide(Side):
    """A trace that was recorded elsewhere."""

    recorded: Recorded = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.recorded.points:
            raise ValueError(f"{self.name}: holds no trace point")

    @property
    def batch(self) -> Batch:
        return self.recorded.batch

    def trace(self, batch: Batch, patch: Patch | None = None) -> Trace:
        points = self.recorded.points
        return Trace(points, self.dtype or narrowest_dtype(points))
