"""JAX's decoder: the blocks stacked, one compiled loop over them, and one over tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp.cache import Cache
from tinyxp.config import Config
from tinyxp.decoding import Decoder
from tinyxp.inputs import Inputs
from tinyxp.model import Context, block, compute_logits, embed, last_real, new_context
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.sampling import greedy

from .jax_kernels import Layer

SHORTEST = 512
"""Slots of the shortest cache; longer ones have 4 times as many, so that few lengths are compiled for."""
WIDE, NARROW = 128, 32
"""Columns of a prefill."""
BURST = 64
"""Tokens that a loop chooses before it returns to Python."""


class Stacked(Mapping[str, jax.Array]):
    """Parameters whose blocks are stacked for a loop over them: name within the block -> (L, ...).

    As a mapping it has every parameter under its own name; those of a block are sliced on demand.
    """

    def __init__(self, params: Params) -> None:
        self.names = dict.fromkeys(params)
        self.rest = {name: x for name, x in params.items() if not name.startswith("blocks.")}
        blocks = [params.block(i) for i in range(params.config.n_layers)]
        self.blocks = _stack(blocks)

    def __getitem__(self, name: str) -> jax.Array:
        if name in self.rest:
            return self.rest[name]
        if name not in self.names:
            raise KeyError(name)
        _, i, within = name.split(".", 2)
        return self.blocks[within][int(i)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@jax.jit
def _stack(blocks: list[dict[str, jax.Array]]) -> dict[str, jax.Array]:
    """Name -> (L, ...), all names in one compilation."""
    return {name: jnp.stack([block[name] for block in blocks]) for name in blocks[0]}


_stacked: WeakKeyDictionary[Params, Stacked] = WeakKeyDictionary()


def stack(params: Params) -> Stacked:
    """Return the parameters stacked: once for each Params, as long as those live."""
    if isinstance(params._arrays, Stacked):
        return params._arrays
    if params not in _stacked:
        _stacked[params] = Stacked(params)
    return _stacked[params]


def run_stacked(
    blocks: dict[str, jax.Array], x: jax.Array, cache: Cache, ctx: Context
) -> tuple[jax.Array, Cache]:
    """``tinyxp.model.run_blocks`` as one loop over stacked weights, compiled once for all blocks."""

    def body(carry: Any, layer: Any) -> Any:
        x, keys, values = carry
        w, index = layer
        x, (k, v) = block(w, x, (Layer(keys, index), Layer(values, index)), ctx, untapped)
        return (x, k.stack, v.stack), None

    layers = blocks, jnp.arange(ctx.config.n_layers, dtype=cache.used.dtype)
    (x, keys, values), _ = jax.lax.scan(body, (x, cache.keys, cache.values), layers)
    assert ctx.placement.cache is not None
    return x, ctx.placement.cache._replace(keys=keys, values=values)


class Model(NamedTuple):
    """What the compiled functions are compiled for."""

    config: Config
    kernels: Kernels


class Weights(NamedTuple):
    """What the compiled functions take of the parameters."""

    blocks: dict[str, jax.Array]
    rest: dict[str, jax.Array]


def _columns(
    weights: Weights, ids: jax.Array, cache: Cache, mask: jax.Array, columns: Any, model: Model
) -> tuple[jax.Array, Cache]:
    """Logits (b, n) after the first ``columns`` of ids (b, t), and the cache with those."""
    params = Params._unflatten(weights.rest.values(), (tuple(weights.rest), model.config))
    inputs = Inputs(params, ids, None, mask)
    ctx = new_context(inputs, cache, model.kernels)
    x, extended = run_stacked(weights.blocks, embed(params, ids, ctx), cache, ctx)
    logits = compute_logits(params, last_real(x, inputs), ctx, untapped)
    return logits[:, 0, :], extended._replace(used=cache.used + columns)


_extend = partial(jax.jit, static_argnames="model", donate_argnames="cache")(_columns)


class GreedyState(NamedTuple):
    """The state of a loop that chooses tokens itself."""

    step: jax.Array  # ()
    new: jax.Array  # (b,) the last token of each row
    ended: jax.Array  # (b,) bool
    ids: jax.Array  # (b, BURST) what was chosen
    finite: jax.Array  # (b, BURST) bool: whether the logits were
    cache: Cache


@partial(jax.jit, static_argnames="model", donate_argnames="cache")
def _greedy(
    weights: Weights,
    new: jax.Array,
    ended: jax.Array,
    cache: Cache,
    steps: jax.Array,
    ends: jax.Array,
    allowed: jax.Array,
    model: Model,
) -> GreedyState:
    """``Decoder.decode_greedily``."""
    b = new.shape[0]
    one, real = jnp.asarray(1, cache.used.dtype), jnp.ones((b, 1), bool)
    ids, finite = jnp.zeros((b, BURST), new.dtype), jnp.ones((b, BURST), bool)

    def unfinished(s: GreedyState) -> jax.Array:
        return (s.step < steps) & ~s.ended.all() & s.finite.all()

    def step(s: GreedyState) -> GreedyState:
        logits, extended = _columns(weights, s.new[:, None], s.cache, real, one, model)
        logits = jnp.where(allowed, logits, -jnp.inf)
        finite = (jnp.isfinite(logits) | ~allowed).all(1) | s.ended
        chosen = jnp.where(s.ended, 0, greedy(logits, xp=jnp).astype(s.new.dtype))
        return GreedyState(
            s.step + 1,
            chosen,
            s.ended | ends[chosen],
            s.ids.at[:, s.step].set(chosen),
            s.finite.at[:, s.step].set(finite),
            extended,
        )

    return jax.lax.while_loop(
        unfinished, step, GreedyState(jnp.zeros_like(steps), new, ended, ids, finite, cache)
    )


class JaxDecoder(Decoder):
    """Compiles a step and two widths of prefill, one for long caches, for each of a few lengths of the cache.

    Columns are padded on the right; the next columns overwrite the slots of that padding. The blocks are
    stacked in a copy, which lives as long as the parameters, unless they come from ``Engine.prepare``.
    """

    chunk = WIDE
    loops = True

    def __init__(self, params: Params, batch: int, length: int, *, kernels: Kernels) -> None:
        stacked = stack(params)
        self.weights = Weights(stacked.blocks, stacked.rest)
        self.model = Model(params.config, kernels)
        self.is_step = False
        super().__init__(params, batch, cache_length(length), kernels=kernels)

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        self.is_step = ids.shape[1] == 1 and self.used > 0  # the last column of a prompt is not a step
        return super().__call__(ids, mask)

    def empty_cache(self, batch: int, length: int) -> Cache:
        """Return a new cache with stacked layers; its zeros come from NumPy: XLA compiles them per shape."""
        config, index = self.params.config, self.index_dtype
        shape = (config.n_layers, batch, config.n_kv_heads, length, config.head_dim)

        def zeros(shape: tuple[int, ...], dtype: Any) -> jax.Array:
            return jax.device_put(np.zeros(shape, dtype))

        return Cache(
            keys=zeros(shape, self.params.dtype),
            values=zeros(shape, self.params.dtype),
            real=zeros((batch, length), bool),
            used=zeros((), index),
            next_position=zeros((batch,), index),
        )

    def feed(self, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        b, t = ids.shape
        slots = max(self.cache.real.shape[1], cache_length(self.used + WIDE))
        short = slots <= 4 * SHORTEST  # one width suffices for long caches
        width = 1 if self.is_step else NARROW if short and t <= NARROW else WIDE
        self.make_room(width)
        padding = ((0, 0), (0, width - t))
        real = np.pad(np.ones((b, t), dtype=bool) if mask is None else mask, padding)
        padded = np.pad(ids, padding, mode="edge").astype(self.index_dtype)  # id 0 may give NaN
        columns = np.asarray(t, self.index_dtype)
        logits, self.cache = _extend(self.weights, padded, self.cache, real, columns, model=self.model)
        self.used += t
        return self.params.backend.to_numpy(logits)

    def make_room(self, columns: int) -> None:
        slots = self.cache.real.shape[1]
        more = cache_length(self.used + columns) - slots
        if more > 0:
            longer = self.empty_cache(self.cache.real.shape[0], slots + more)
            self.cache = jax.tree.map(_put_first, longer, self.cache)

    def decode_greedily(
        self, new: np.ndarray, ended: np.ndarray, steps: int, ends: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        steps = min(steps, BURST)
        self.make_room(steps)
        index = self.index_dtype
        state = _greedy(
            self.weights,
            new.astype(index),
            ended,
            self.cache,
            np.asarray(steps, index),
            ends,
            allowed,
            model=self.model,
        )
        self.cache, done = state.cache, int(state.step)
        self.used += done
        return np.asarray(state.ids)[:, :done], np.asarray(state.finite)[:, :done]


def cache_length(length: int) -> int:
    """Return the shortest of the cache lengths SHORTEST * 4^k that holds ``length`` columns."""
    slots = SHORTEST
    while slots < length:
        slots *= 4
    return slots


def _put_first(longer: jax.Array, x: jax.Array) -> jax.Array:
    """Return x at the beginning of a longer array, by NumPy: caches rarely grow, and XLA would compile it."""
    if x.shape == longer.shape:
        return x
    host = np.zeros(longer.shape, longer.dtype)
    host[tuple(slice(size) for size in x.shape)] = np.asarray(x)
    return jax.device_put(host)
