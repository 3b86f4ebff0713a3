"""What a library reaches on this machine at best: in arithmetic, and in reading a model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp.bench.arithmetic import matrices, nbytes
from tinyxp.bench.timing import timed
from tinyxp.bench.work import Work, inferred
from tinyxp.dtypes import dtype_name
from tinyxp.engine import engine_of
from tinyxp.inputs import as_kernels
from tinyxp.params import Params

LARGEST = 2048
"""The width of the product's matrices."""
ENOUGH = 0.1
"""Seconds of a product after which a larger one tells no more: in float16 NumPy takes 40 s for 2048."""


class Limit(NamedTuple):
    """A piece of work at a library's best, and how much it is: operations, or bytes."""

    work: Work
    amount: int


def product(params: Params) -> Limit:
    """A product of two square matrices in the parameters' library and dtype: 2 m^3 operations."""
    width = LARGEST // 8
    while True:
        work = _square(params, width)
        work()
        if width == LARGEST or timed(work) > ENOUGH:
            return Limit(work, 2 * width**3)
        width *= 2


def _square(params: Params, width: int) -> Work:
    backend = params.backend
    multiply = params.xp.matmul if backend.eager else backend.jit(params.xp.matmul)
    host = np.random.default_rng(0).normal(size=(width, width))
    x = backend.from_numpy(host, dtype=dtype_name(params.dtype), device=params.device)
    return inferred(backend, lambda: multiply(x, x))


def weights_pass(params: Params) -> Limit:
    """One vector through each matrix of the model, with the backend's own kernel: the bytes of them all."""
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
    return Limit(inferred(backend, lambda: compiled(params, vectors)), amount)
