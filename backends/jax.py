"""JAX: compiled prefill and step, gradients, devices; 32-bit unless jax_enable_x64 is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp.dtypes import dtype_name
from tinyxp.params import Params
from tinyxp.registry import Backend


class JaxBackend(Backend):
    """jax.numpy conforms to the standard. Devices follow the arrays, so creation functions get none."""

    eager = False
    has_gradients = True
    compiles = True

    @property
    def index_dtype(self) -> str:  # type: ignore[override]
        return "int64" if jax.config.jax_enable_x64 else "int32"

    def is_array(self, x: object) -> bool:
        return isinstance(x, jax.Array)

    def is_concrete(self, x: Any) -> bool:
        return not isinstance(x, jax.core.Tracer)

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> jax.Array:
        if x.dtype.kind in "iu" and not jax.config.jax_enable_x64:
            if x.size and not np.iinfo(np.int32).min <= x.min() <= x.max() <= np.iinfo(np.int32).max:
                raise ValueError(f"integers from {x.min()} to {x.max()} exceed int32, the widest without x64")
            x = x.astype(np.int32) if x.dtype.itemsize == 8 else x
        if dtype is None and x.dtype.kind == "f":
            dtype = x.dtype.name  # JAX would make float32 of float64 without a word
        if dtype is None:
            there = x.copy()  # what is put may share memory, and ids change on the host
        else:
            with np.errstate(over="ignore"):
                there = np.asarray(x, dtype=self.dtype(dtype))
        return jax.device_put(there, self.device(device))  # jnp.asarray would compile for every shape

    def to_numpy(self, x: jax.Array) -> np.ndarray:
        return np.asarray(x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x)

    def astype(self, x: jax.Array, dtype: str | None, device: Any = None) -> jax.Array:
        x = x if dtype is None else x.astype(self.dtype(dtype))
        return x if device is None else jax.device_put(x, self.device(device))

    def dtype(self, dtype: Any) -> Any:
        if dtype_name(dtype) == "float64" and not jax.config.jax_enable_x64:
            raise ValueError(
                "dtype is 'float64', which JAX computes in only with jax_enable_x64: "
                "jax.config.update('jax_enable_x64', True)"
            )
        return super().dtype(dtype)

    def dtypes(self) -> tuple[str, ...]:
        return tuple(d for d in super().dtypes() if d != "float64" or jax.config.jax_enable_x64)

    def device(self, device: Any) -> Any:
        if not isinstance(device, str):
            return device
        known = {str(d): d for d in jax.devices()} | {d.platform: d for d in reversed(jax.devices())}
        return known[device] if device in known else super().device(device)

    def device_of(self, x: Any) -> Any:
        return None

    def devices(self) -> list[str]:
        return [str(d) for d in jax.devices()]

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(f)

    def value_and_grad(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.value_and_grad(f)

    def deliver(self, x: Any, callback: Callable[[np.ndarray], Any]) -> None:
        if self.is_concrete(x):
            callback(self.to_numpy(x))
            return
        # It runs under jax.grad, unlike an io_callback, and if nothing uses x, unlike a pure_callback. Under
        # jax.vmap there is a call for each index.
        jax.debug.callback(lambda values: callback(np.array(values)), x)

    def await_callbacks(self) -> None:
        jax.effects_barrier()  # type: ignore[no-untyped-call]

    def synchronize(self, x: Any) -> Any:
        return jax.block_until_ready(x)

    def float64(self) -> Any:
        return jax.enable_x64(True)


def _flatten_with_keys(params: Params) -> tuple[list[Any], Any]:
    leaves, static = params._flatten()
    return [(jax.tree_util.DictKey(name), x) for name, x in zip(params, leaves, strict=True)], static


jax.tree_util.register_pytree_with_keys(
    Params, _flatten_with_keys, lambda static, leaves: Params._unflatten(leaves, static), Params._flatten
)
backend = JaxBackend("jax", jnp)
