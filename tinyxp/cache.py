"""The key/value cache: a value, like any array. Extending it returns a new one; the old one stays valid."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from tinyxp import ops
from tinyxp.checks import as_integer
from tinyxp.dtypes import dtype_name
from tinyxp.inputs import Inputs, as_params
from tinyxp.params import Params
from tinyxp.typing import Array


class Cache(NamedTuple):
    """The keys and values of b rows, in up to s slots.

    A column of ids takes one slot in every row, padding included, so ``used`` is one number. ``real`` marks
    the slots of real tokens; ``next_position`` counts those of each row.
    """

    keys: tuple[Array, ...]  # per block (b, g, s, hd), already rotated
    values: tuple[Array, ...]  # per block (b, g, s, hd)
    real: Array  # (b, s) bool
    used: Array  # () integer
    next_position: Array  # (b,) integers

    def first(self, slots: int) -> Cache:
        """Return its first slots, as views if the library has views."""
        return self._replace(
            keys=tuple(x[:, :, :slots, :] for x in self.keys),
            values=tuple(x[:, :, :slots, :] for x in self.values),
            real=self.real[:, :slots],
        )


def new_cache(params: Params, batch: int, length: int) -> Cache:
    """Return an empty cache for ``batch`` rows and ``length`` columns, in the parameters' library and dtype.

    It holds 2 L b g hd length numbers. Raise ValueError naming a batch or a length below 1.
    """
    params = as_params(params, None)
    batch, length = as_integer("batch", batch, low=1), as_integer("length", length, low=1)
    config, xp = params.config, params.xp
    index = getattr(xp, params.backend.index_dtype)
    zeros = partial(xp.zeros, device=params.device)
    shape = (batch, config.n_kv_heads, length, config.head_dim)
    return Cache(
        keys=tuple(zeros(shape, dtype=params.dtype) for _ in range(config.n_layers)),
        values=tuple(zeros(shape, dtype=params.dtype) for _ in range(config.n_layers)),
        real=zeros((batch, length), dtype=xp.bool),
        used=zeros((), dtype=index),
        next_position=zeros((batch,), dtype=index),
    )


class Placement(NamedTuple):
    """The t columns of one pass: their positions, what they see, and the cache slots they take."""

    positions: Array  # (b or 1, t): how many real tokens of its row precede each
    visible: Array  # (b or 1, 1, t, s) bool: the keys that each query may see
    start: Array | None  # () the first slot of this pass; None without a cache
    slots: Array | None  # (s,) the numbers 0 to s - 1; None without a cache
    cache: Cache | None  # the cache after this pass, except its keys and values


def place(inputs: Inputs, cache: Cache | None) -> Placement:
    """Place columns: causality by the order of slots, padding by the mask, positions as given or counted."""
    params, ids, positions, mask = inputs
    xp, device, (b, t) = params.xp, params.device, ids.shape
    columns = xp.arange(t, device=device)
    if cache is not None:
        check_cache(inputs, cache)
    causal = columns[None, :] <= columns[:, None]  # (t, t)
    if positions is None:
        positions = columns[None, :]
        if mask is not None:
            count = xp.sum(xp.astype(causal & mask[:, None, :], ids.dtype), axis=-1)  # (b, t)
            positions = xp.where(count > 0, count - 1, 0)
        if cache is not None:
            positions = positions + cache.next_position[:, None]
    check_learned_positions(inputs, positions)

    if cache is None:
        visible = causal[None, None, ...] if mask is None else causal & mask[:, None, None, :]
        return Placement(positions, visible, None, None, None)

    slots = xp.arange(cache.real.shape[1], device=device)
    new = xp.ones((b, t), dtype=xp.bool, device=device) if mask is None else mask
    real = ops.write_cache(cache.real[:, None, :, None], new[:, None, :, None], cache.used, slots, xp=xp)
    real = real[:, 0, :, 0]
    visible = (slots <= cache.used + columns[:, None]) & real[:, None, None, :]
    after = xp.max(xp.where(new, positions + 1, cache.next_position[:, None]), axis=-1)
    extended = cache._replace(real=real, used=cache.used + t, next_position=after)
    return Placement(positions, visible, cache.used, slots, extended)


def check_learned_positions(inputs: Inputs, positions: Array) -> None:
    """Raise ValueError if counted learned positions reach max_seq_len; rotary positions have no limit."""
    config, backend = inputs.params.config, inputs.params.backend
    if config.position != "learned" or inputs.positions is not None:
        return
    count = inputs.ids.shape[1] if inputs.mask is None else 0
    if count <= config.max_seq_len and backend.is_concrete(positions):
        count = int(backend.to_numpy(positions).max()) + 1
    if count > config.max_seq_len:
        raise ValueError(f"positions: {count} > {config.max_seq_len}, the max_seq_len of this model")


def check_cache(inputs: Inputs, cache: Cache) -> None:
    """Raise ValueError if a cache belongs to other parameters or rows, or has fewer than t free slots."""
    params, backend, (b, t) = inputs.params, inputs.params.backend, inputs.ids.shape
    if not backend.is_array(cache.real):
        raise ValueError(f"cache holds no arrays of {backend.name}, which the parameters are of")
    config, (rows, slots) = params.config, cache.real.shape
    if rows != b:
        raise ValueError(f"ids has {b} rows; the cache has {rows}")
    expected = (config.n_layers, b, config.n_kv_heads, slots, config.head_dim)
    actual = (len(cache.keys), *cache.keys[0].shape)
    if actual != expected or cache.keys[0].dtype != params.dtype:
        dtype = dtype_name(cache.keys[0].dtype)
        raise ValueError(
            f"cache has (layers, rows, heads, slots, head_dim) {actual} in {dtype}; "
            f"the parameters need {expected} in {dtype_name(params.dtype)}"
        )
    columns = t + int(cache.used) if backend.is_concrete(cache.used) else t
    if columns > slots:
        raise ValueError(f"cache length: {columns} columns > {slots}, the length of this cache")
