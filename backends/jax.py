"""JAX: compiled prefill and step, gradients, devices; 32-bit unless jax_enable_x64 is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp.dtypes import dtype_name
from tinyxp.inputs import Inputs, prepare
from tinyxp.model import run
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.registry import Backend

from .jax_decoding import JaxDecoder, attention, linear, stacked, write_cache
from .jax_loss import linear_cross_entropy


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

    def prepared(self, params: Params) -> Params:
        found = stacked(params)
        jax.block_until_ready(found.blocks)
        return params.held_as(found)

    def compile(self, params: Params) -> Callable[..., jax.Array]:
        leaves, static = params._flatten()
        kernels = Kernels(**self.kernels)

        def compute(leaves: list[jax.Array], *inputs: Any) -> jax.Array:
            logits, _ = run(Inputs(Params._unflatten(leaves, static), *inputs), None, kernels, untapped)
            return logits

        compiled = jax.jit(compute)

        def forward(ids: Any, *, positions: Any = None, mask: Any = None) -> jax.Array:
            plain = positions is None and mask is None and isinstance(ids, jax.Array)
            if plain and ids.ndim == 2 and ids.size and ids.dtype == self.index_dtype:
                logits = compiled(leaves, ids, None, None)
                prepare(params, ids, None, None, None)  # while XLA computes
                return logits
            inputs = prepare(params, ids, positions, mask, None)
            return compiled(leaves, inputs.ids, inputs.positions, inputs.mask)

        return forward

    def tell(self, x: Any, told: Callable[[np.ndarray], Any]) -> None:
        if self.is_concrete(x):
            told(self.to_numpy(x))
            return
        # Runs under jax.grad too, which an io_callback does not, and where nothing uses x, where XLA would
        # drop a pure_callback. Under jax.vmap there is a call for each index.
        jax.debug.callback(lambda values: told(np.array(values)), x)

    def hear(self) -> None:
        jax.effects_barrier()  # type: ignore[no-untyped-call]

    def synchronize(self, x: Any) -> Any:
        return jax.block_until_ready(x)

    def float64(self) -> Any:
        return jax.enable_x64(True)


def softmax(x: jax.Array, *, xp: Any, visible: jax.Array | None = None, axis: int = -1) -> jax.Array:
    """``tinyxp.ops.softmax``, JAX's own."""
    return jax.nn.softmax(x, axis=axis, where=visible)


def reference_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array, *, xp: Any, tap: Any = None
) -> jax.Array:
    """``tinyxp.ops.attention``, JAX's own, for queries that see something."""
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    mask = jnp.broadcast_to(visible, (q.shape[0], 1, q.shape[1], k.shape[1]))
    return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, mask=mask), 1, 2)


def _flatten_with_keys(params: Params) -> tuple[list[Any], Any]:
    leaves, static = params._flatten()
    return [(jax.tree_util.DictKey(name), x) for name, x in zip(params, leaves, strict=True)], static


jax.tree_util.register_pytree_with_keys(
    Params, _flatten_with_keys, lambda static, leaves: Params._unflatten(leaves, static), Params._flatten
)
backend = JaxBackend(
    "jax",
    jnp,
    {
        "attention": attention,
        "linear": linear,
        "write_cache": write_cache,
        "linear_cross_entropy": linear_cross_entropy,
    },
    {
        "softmax": softmax,
        "silu": lambda x, *, xp: jax.nn.silu(x),
        "gelu": lambda x, *, xp: jax.nn.gelu(x, approximate=False),
        "gelu_tanh": lambda x, *, xp: jax.nn.gelu(x, approximate=True),
        "attention": reference_attention,
    },
    JaxDecoder,
    {"linear_cross_entropy": linear_cross_entropy},
)
