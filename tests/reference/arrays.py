"""Arrays of every backend: created, compared, and computed by compiled functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxp

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)  # these models are tiny: threads only wait for each other

FLOAT32 = 1e-5
"""Two float32 runs of these small models, logits of size 3, in whatever order they sum."""


def libraries(*names: str) -> list[Any]:
    """Parameters of a test, one for each library; skipped, saying so, where it is not installed."""
    found = tinyxp.available_backends()
    return [
        pytest.param(name, marks=pytest.mark.skipif(found[name] is None, reason=f"{name} is not installed"))
        for name in names
    ]


def array(backend: tinyxp.Backend, x: Any, dtype: str | None = None) -> Any:
    """Numbers as an array of the backend: floats in ``dtype``, integers as they are."""
    return backend.from_numpy(np.asarray(x), dtype=dtype)


def kind(x: Any) -> str:
    """The bare name of an array's dtype: torch.float32 is "float32"."""
    return str(x.dtype).rpartition(".")[2]


def host(x: Any) -> np.ndarray:
    """An array of any backend on NumPy; NumPy's own functions give scalars for arrays without dimensions."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    return tinyxp.registry.backend_of(x).to_numpy(x)


def distance(a: Any, b: Any) -> float:
    """The largest difference of two arrays of any backends."""
    a, b = (x if isinstance(x, np.ndarray) else host(x) for x in (a, b))
    assert a.shape == b.shape
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))


def float64_on(backend: tinyxp.Backend) -> contextlib.AbstractContextManager[Any]:
    """Lets JAX compute in float64; the other libraries do anyway."""
    return backend.float64()


def compiled(backend: tinyxp.Backend, f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f, compiled as a whole if the backend compiles single operations anyway.

    JAX compiles every operation for every shape, which takes longer than compiling f. Use it if a test checks
    values; ``tests/model/test_forward.py`` and ``tests/test_cache.py`` run the public functions uncompiled.
    """
    return f if backend.eager else backend.jit(f)
