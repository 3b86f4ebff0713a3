"""The truth: the trusted weights' forward in float64, and what fewer digits cost a right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp import ops, registry
from tinyxp.config import Config
from tinyxp.doctor.points import Batch
from tinyxp.formats import open_checkpoint
from tinyxp.inputs import Bounds, as_host_integers
from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.shapes import parameter_shapes
from tinyxp.typing import Array

HostTap = Callable[[str, np.ndarray], np.ndarray]
"""A tap that sees values on NumPy."""

CHUNK = 2**21
"""How many numbers of a matrix are widened at a time."""


class Weights(NamedTuple):
    """The weights of a model, none of them held: a name goes in, the array comes out, on NumPy."""

    config: Config
    read: Callable[[str], np.ndarray]

    @classmethod
    def of_params(cls, params: Params) -> Weights:
        """Those of parameters of any library."""
        backend = params.backend
        return cls(params.config, lambda name: backend.to_numpy(params[name]))

    @classmethod
    def of_file(cls, path: Path) -> Weights:
        """Those of a model's files, each read when it is asked for."""
        checkpoint = open_checkpoint(path)
        checkpoint.verify()
        weights = checkpoint.weights()
        return cls(checkpoint.config, lambda name: weights[name].read())


class _Read(Mapping[str, Array]):
    """Parameters that are made when they are asked for."""

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


def streamed(
    weights: Weights, ids: np.ndarray, *, dtype: str = "float64", backend: Backend | None = None
) -> tuple[Params, np.ndarray]:
    """Parameters that compute in ``dtype`` and take little memory, and the ids to call them with.

    The embedding holds the rows of these ids alone, so the head stands apart; on NumPy in float64 matrices
    stay as they are, since ``widening_linear`` widens them piece by piece.
    """
    backend = backend or registry.backend("numpy")
    config = replace(weights.config, tie_embeddings=False)
    as_host_integers(ids, Bounds("ids", config.vocab_size, "the vocabulary size"))
    used, renumbered = np.unique(ids, return_inverse=True)
    rows = backend.from_numpy(weights.read("embed.weight")[used], dtype=dtype)
    head = "embed.weight" if weights.config.tie_embeddings else "head.weight"

    def read(name: str) -> Array:
        if name == "embed.weight":
            return rows
        x = weights.read(head if name == "head.weight" else name)
        if backend.name == "numpy" and dtype == "float64" and name != "pos_embed.weight":
            return x
        return backend.from_numpy(x, dtype=dtype)

    params = Params.lazy(_Read(tuple(parameter_shapes(config)), read), config, backend)
    return params, renumbered.reshape(ids.shape)


def widening_linear(x: Array, weight: Array, bias: Array | None = None, *, xp: Any) -> Array:
    """``tinyxp.ops.linear`` on NumPy; a narrower weight is widened some rows at a time."""
    if weight.dtype == x.dtype:
        return ops.linear(x, weight, bias, xp=xp)
    rows = max(1, CHUNK // weight.shape[1])
    parts = [ops.linear(x, weight[i : i + rows], None, xp=xp) for i in range(0, weight.shape[0], rows)]
    y: Array = parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)
    return y if bias is None else y + ops.cast(bias, x.dtype, xp=xp)


def run(weights: Weights, batch: Batch, tap: HostTap, *, dtype: str = "float64") -> None:
    """One forward of the weights in ``dtype``, in the array API alone; ``tap`` sees every value on NumPy,
    and may replace it.

    On NumPy where it has the dtype, else on the first library installed that has. ValueError naming the
    dtype where none has.
    """
    backend = library_with(dtype)
    params, ids = streamed(weights, batch.ids, dtype=dtype, backend=backend)

    def on_host(name: str, x: Array) -> Array:
        before = backend.to_numpy(x)
        after = tap(name, before)
        return x if after is before else backend.from_numpy(np.asarray(after), dtype=dtype)

    kernels = {"linear": widening_linear} if backend.name == "numpy" else None
    # A broken model may overflow; that is told, not warned of.
    with backend.inference(), np.errstate(all="ignore"):
        forward(params, ids, mask=batch.mask, kernels=kernels, tap=on_host)


def library_with(dtype: str) -> Backend:
    """NumPy, or another library that has the dtype: one that is in use already, if any."""
    numpy = registry.backend("numpy")
    if dtype in numpy.dtypes():
        return numpy
    for found in registry.loaded():
        if dtype in found.dtypes():
            return found
    for name, version in registry.available_backends().items():
        if version is not None and dtype in (found := registry.backend(name)).dtypes():
            return found
    raise ValueError(f"dtype is {dtype!r}; no installed library computes in it, 'tinyxp[torch]' does")
