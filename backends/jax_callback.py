"""Values out of compiled JAX: what is told to the host when they are computed. No backend: jax.py is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def when_computed(x: jax.Array, told: Callable[[np.ndarray], Any]) -> None:
    """Each run of the function that x is traced in calls ``told`` with x's values, in any order among calls.

    Runs under jax.grad too, which an io_callback does not, and where nothing uses x, where XLA would drop a
    pure_callback. Under jax.vmap there is a call for each index. ``told`` must not raise: nobody would hear.
    """
    jax.debug.callback(lambda values: told(np.array(values)), x)


def wait() -> None:
    """Returns once every call that is due has been made."""
    jax.effects_barrier()  # type: ignore[no-untyped-call]
