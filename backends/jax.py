"""JAX: compiled prefill and step, gradients, devices; 32-bit unless jax_enable_x64 is on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp.params import Params
from tinyxp.registry import Backend, dtype_name


class JaxBackend(Backend):
    """jax.numpy is a standard namespace by itself; devices follow the arrays, so creation is told none."""

    @property
    def index_dtype(self) -> str:  # type: ignore[override]
        return "int64" if jax.config.jax_enable_x64 else "int32"

    def is_array(self, x: object) -> bool:
        return isinstance(x, jax.Array)

    def is_concrete(self, x: Any) -> bool:
        return not isinstance(x, jax.core.Tracer)

    def from_numpy(self, x: np.ndarray, *, dtype: str | None = None, device: Any = None) -> jax.Array:
        return jnp.asarray(x, dtype=None if dtype is None else self.dtype(dtype), device=self.device(device))

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
        found = {str(d): d for d in jax.devices()} | {d.platform: d for d in reversed(jax.devices())}
        if device not in found:
            raise ValueError(f"device is {device!r}; JAX has {', '.join(self.devices())}")
        return found[device]

    def device_of(self, x: Any) -> Any:
        return None

    def devices(self) -> list[str]:
        return [str(d) for d in jax.devices()]

    def jit(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(f)

    def value_and_grad(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.value_and_grad(f)

    def synchronize(self, x: Any) -> Any:
        return jax.block_until_ready(x)


def _flatten(params: Params) -> tuple[list[Any], Any]:
    return list(params.values()), (tuple(params), params.config, params.xp)


def _flatten_with_keys(params: Params) -> tuple[list[Any], Any]:
    leaves, context = _flatten(params)
    return [(jax.tree_util.DictKey(name), x) for name, x in zip(params, leaves, strict=True)], context


def _unflatten(context: Any, leaves: Any) -> Params:
    return Params._unflatten(leaves, *context)


jax.tree_util.register_pytree_with_keys(Params, _flatten_with_keys, _unflatten, _flatten)
backend = JaxBackend("jax", jnp)
