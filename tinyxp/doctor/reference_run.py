"""The reference run: a forward pass of the trusted weights, in float64 or, to measure rounding, in less."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp import ops, registry
from tinyxp.config import Config
from tinyxp.doctor.traces import Batch
from tinyxp.formats import open_checkpoint
from tinyxp.inputs import Bounds, as_host_integers
from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.shapes import parameter_shapes
from tinyxp.typing import Array

HostTap = Callable[[str, np.ndarray], np.ndarray]
"""A tap that receives values on NumPy."""

CHUNK = 2**21
"""How many elements of a matrix are widened at a time."""


class WeightSource(NamedTuple):
    """A model's weights, read one at a time: ``read(name)`` returns an array on NumPy."""

    config: Config
    read: Callable[[str], np.ndarray]

    @classmethod
    def of_params(cls, params: Params) -> WeightSource:
        """Return the weights of parameters of any library."""
        backend = params.backend
        return cls(params.config, lambda name: backend.to_numpy(params[name]))

    @classmethod
    def of_file(cls, path: Path) -> WeightSource:
        """Return the weights in a model's files, each read on request."""
        checkpoint = open_checkpoint(path)
        checkpoint.verify()
        weights = checkpoint.weights()
        return cls(checkpoint.config, lambda name: weights[name].read())


class _LazyArrays(Mapping[str, Array]):
    """Arrays that are read on request."""

    def __init__(self, names: tuple[str, ...], read: Callable[[str], Array]) -> None:
        self.names, self.read = dict.fromkeys(names), read

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def stream_params(
    weights: WeightSource, ids: np.ndarray, *, dtype: str, backend: Backend
) -> tuple[Params, np.ndarray]:
    """Return parameters in ``dtype`` that are read on request, and the ids to call them with.

    The embedding holds only the rows of these ids, renumbered, so the head is untied. On NumPy in float64
    matrices keep their dtype: ``widening_linear`` widens them in pieces.
    """
    config = replace(weights.config, tie_embeddings=False)
    as_host_integers(ids, Bounds("ids", config.vocab_size, "the vocabulary size"))
    used, renumbered = np.unique(ids, return_inverse=True)
    rows = backend.from_numpy(weights.read("embed.weight")[used], dtype=dtype)
    head = "embed.weight" if weights.config.tie_embeddings else "head.weight"
    widens_later = dtype == "float64" and backend is _numpy()

    def read(name: str) -> Array:
        if name == "embed.weight":
            return rows
        x = weights.read(head if name == "head.weight" else name)
        return x if widens_later and name != "pos_embed.weight" else backend.from_numpy(x, dtype=dtype)

    arrays = _LazyArrays(tuple(parameter_shapes(config)), read)
    return Params.lazy(arrays, config, backend), renumbered.reshape(ids.shape)


def widening_linear(x: Array, weight: Array, bias: Array | None = None, *, xp: Any) -> Array:
    """x W^T + b on NumPy; a weight of a narrower dtype than x is widened some rows at a time."""
    if weight.dtype == x.dtype:
        return ops.linear(x, weight, bias, xp=xp)
    rows = max(1, CHUNK // weight.shape[1])
    parts = [ops.linear(x, weight[i : i + rows], None, xp=xp) for i in range(0, weight.shape[0], rows)]
    y: Array = parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)
    return y if bias is None else y + ops.cast(bias, x.dtype, xp=xp)


def run_reference(weights: WeightSource, batch: Batch, tap: HostTap, *, dtype: str = "float64") -> None:
    """Run one forward pass in ``dtype``; ``tap`` sees every value on NumPy and may replace it.

    It uses no kernels, and runs on NumPy or, if NumPy lacks the dtype, on an installed library that has it.
    Raise ValueError naming the dtype if none has.
    """
    backend = library_with(dtype)
    params, ids = stream_params(weights, batch.ids, dtype=dtype, backend=backend)

    def tap_on_host(name: str, x: Array) -> Array:
        before = backend.to_numpy(x)
        after = tap(name, before)
        return x if after is before else backend.from_numpy(np.asarray(after), dtype=dtype)

    kernels = {"linear": widening_linear} if backend is _numpy() else None
    # A faulty model may overflow: that is reported, not warned about.
    with backend.inference(), np.errstate(all="ignore"):
        forward(params, ids, mask=batch.mask, kernels=kernels, tap=tap_on_host)


def library_with(dtype: str) -> Backend:
    """Return NumPy, or another library that has the dtype, preferring those already imported."""
    if dtype in _numpy().dtypes():
        return _numpy()
    for backend in registry.loaded():
        if dtype in backend.dtypes():
            return backend
    for name, version in registry.available_backends().items():
        if version is not None and dtype in (backend := registry.backend(name)).dtypes():
            return backend
    raise ValueError(f"dtype is {dtype!r}; no installed library computes in it, 'tinyxp[torch]' does")


def _numpy() -> Backend:
    """Return the adapter of the host's own arrays."""
    return registry.backend(np)
