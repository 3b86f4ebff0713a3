"""A library's limits on this machine: in arithmetic, and in reading a model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp.bench.arithmetic import matrices, nbytes
from tinyxp.bench.timing import time_call
from tinyxp.bench.work import Work, infer
from tinyxp.dtypes import dtype_name
from tinyxp.engine import engine_of
from tinyxp.inputs import as_kernels
from tinyxp.params import Params

LARGEST = 2048
"""The width of the product's matrices."""
ENOUGH = 0.1
"""Seconds of a product after which larger ones are not tried: NumPy in float16 takes 40 s for 2048."""


class Limit(NamedTuple):
    """Work that a library does at its best rate, and its amount: operations, or bytes."""

    work: Work
    amount: int


def product(params: Params) -> Limit:
    """Return a product of two m x m matrices in the parameters' library and dtype: 2 m^3 operations."""
    width = LARGEST // 8
    while True:
        work = _square(params, width)
        work()
        if width == LARGEST or time_call(work) > ENOUGH:
            return Limit(work, 2 * width**3)
        width *= 2


def _square(params: Params, width: int) -> Work:
    backend = params.backend
    multiply = params.xp.matmul if backend.eager else backend.jit(params.xp.matmul)
    host = np.random.default_rng(0).normal(size=(width, width))
    x = backend.from_numpy(host, dtype=dtype_name(params.dtype), device=params.device)
    return infer(backend, lambda: multiply(x, x))


def weights_pass(params: Params) -> Limit:
    """Return the product of each matrix of the model with one vector, by the backend's own kernel.

    The amount is the bytes of the matrices.
    """
    backend, names = params.backend, matrices(params.config)
    linear = as_kernels(engine_of(backend).kernels).linear
    vectors = {
        str(width): params.xp.ones((1, 1, width), dtype=params.dtype, device=params.device)
        for width in sorted({params[name].shape[1] for name in names})
    }

    def multiply(params: Params, vectors: Mapping[str, Any]) -> list[Any]:
        return [linear(vectors[str(params[n].shape[1])], params[n], None, xp=params.xp) for n in names]

    compiled = multiply if backend.eager else backend.jit(multiply)
    amount = sum(nbytes(params[name], params) for name in names)
    return Limit(infer(backend, lambda: compiled(params, vectors)), amount)
