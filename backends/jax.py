"""JAX: compiled prefill and step, gradients, devices; 32-bit unless jax_enable_x64 is on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp.cache import Cache
from tinyxp.decoding import Decoder
from tinyxp.model import extend
from tinyxp.params import Params
from tinyxp.registry import Backend, dtype_name


class JaxBackend(Backend):
    """jax.numpy is a standard namespace by itself; devices follow the arrays, so creation is told none."""

    eager = False

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
        return found[device] if device in found else super().device(device)

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

    def float64(self) -> Any:
        return jax.enable_x64(True)


def write_cache(cache: jax.Array, new: jax.Array, start: Any, slots: Any, *, xp: Any) -> jax.Array:
    """``tinyxp.ops.write_cache``, in place where XLA may: new must fit between start and the last slot."""
    return jax.lax.dynamic_update_slice_in_dim(cache, new, start, axis=2)


@partial(jax.jit, donate_argnames="cache")
def _extend(
    params: Params, ids: jax.Array, cache: Cache, mask: jax.Array, columns: jax.Array
) -> tuple[jax.Array, Cache]:
    logits, extended = extend(params, ids, cache, mask=mask, kernels=backend.kernels, last=True)
    return logits[:, 0, :], extended._replace(used=cache.used + columns)


def softmax(x: jax.Array, *, xp: Any, visible: jax.Array | None = None, axis: int = -1) -> jax.Array:
    """``tinyxp.ops.softmax``, JAX's own."""
    return jax.nn.softmax(x, axis=axis, where=visible)


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array, *, xp: Any, tap: Any = None
) -> jax.Array:
    """``tinyxp.ops.attention``, JAX's own, for queries that see something."""
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    mask = jnp.broadcast_to(visible, (q.shape[0], 1, q.shape[1], k.shape[1]))
    return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, mask=mask), 1, 2)


class JaxDecoder(Decoder):
    """Compiles one prefill for each bucket of prompt lengths, and one step for each bucket of cache lengths.

    Columns are padded on the right to their bucket; the slots of that padding are written over by the next.
    """

    def __init__(self, params: Params, batch: int, length: int) -> None:
        super().__init__(params, batch, bucket(length))

    def feed(self, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        b, t = ids.shape
        width = t if t == 1 else bucket(t)
        self.make_room(width)
        padding = ((0, 0), (0, width - t))
        real = np.pad(np.ones((b, t), dtype=bool) if mask is None else mask, padding)
        index = self.params.backend.index_dtype
        padded = np.pad(ids, padding).astype(index)
        logits, self.cache = _extend(self.params, padded, self.cache, real, np.asarray(t, dtype=index))
        self.used += t
        return self.params.backend.to_numpy(logits)


def bucket(length: int) -> int:
    """The power of two, 16 or more, that holds ``length``."""
    return max(16, 1 << (length - 1).bit_length())


def _flatten_with_keys(params: Params) -> tuple[list[Any], Any]:
    leaves, static = params._flatten()
    return [(jax.tree_util.DictKey(name), x) for name, x in zip(params, leaves, strict=True)], static


jax.tree_util.register_pytree_with_keys(
    Params, _flatten_with_keys, lambda static, leaves: Params._unflatten(leaves, static), Params._flatten
)
backend = JaxBackend(
    "jax",
    jnp,
    {"write_cache": write_cache},
    {
        "softmax": softmax,
        "silu": lambda x, *, xp: jax.nn.silu(x),
        "gelu": lambda x, *, xp: jax.nn.gelu(x, approximate=False),
        "gelu_tanh": lambda x, *, xp: jax.nn.gelu(x, approximate=True),
        "attention": attention,
    },
    JaxDecoder,
)
