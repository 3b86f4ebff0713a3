"""The key/value cache: a value, like any array; extending it makes a new one and leaves the old one good."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from tinyxp import ops
from tinyxp.checks import as_integer
from tinyxp.inputs import Inputs, as_params, check_cache, check_learned_positions
from tinyxp.params import Params
from tinyxp.typing import Array


class Cache(NamedTuple):
    """What a decoder remembers of b rows, in up to s slots.

    A column of ids takes one slot in every row, padding too, so that ``used`` is one number; ``real`` says
    which slots hold real tokens, and ``next_position`` counts those of each row.
    """

    keys: tuple[Array, ...]  # per block (b, g, s, hd), rotated already
    values: tuple[Array, ...]  # per block (b, g, s, hd)
    real: Array  # (b, s) bool
    used: Array  # () integer
    next_position: Array  # (b,) integers

    def first(self, slots: int) -> Cache:
        """Its first slots, as views where the library has views."""
        return self._replace(
            keys=tuple(x[:, :, :slots, :] for x in self.keys),
            values=tuple(x[:, :, :slots, :] for x in self.values),
            real=self.real[:, :slots],
        )


def new_cache(params: Params, batch: int, length: int) -> Cache:
    """An empty cache for ``batch`` rows and ``length`` columns, in the parameters' library, dtype and device.

    It holds 2 L b g hd length numbers. Raises ValueError naming a batch or a length below 1.
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


class Layout(NamedTuple):
    """Where the t columns of one pass lie: their positions, what they see, and the slots they take."""

    positions: Array  # (b or 1, t): how many real tokens of its row stand before each
    visible: Array  # (b or 1, 1, t, s) bool: the keys that each query may see
    start: Array | None  # () the first slot of this pass; None without a cache
    slots: Array | None  # (s,) the numbers 0 to s - 1; None without a cache
    cache: Cache | None  # the cache after this pass, its keys and values still those before


def lay_out(inputs: Inputs, cache: Cache | None) -> Layout:
    """Causality by the order of slots, padding by the mask, positions given or counted over real tokens."""
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
        return Layout(positions, visible, None, None, None)

    slots = xp.arange(cache.real.shape[1], device=device)
    new = xp.ones((b, t), dtype=xp.bool, device=device) if mask is None else mask
    real = ops.write_cache(cache.real[:, None, :, None], new[:, None, :, None], cache.used, slots, xp=xp)
    real = real[:, 0, :, 0]
    visible = (slots <= cache.used + columns[:, None]) & real[:, None, None, :]
    after = xp.max(xp.where(new, positions + 1, cache.next_position[:, None]), axis=-1)
    extended = cache._replace(real=real, used=cache.used + t, next_position=after)
    return Layout(positions, visible, cache.used, slots, extended)
