"""JAX's decoder: the blocks stacked, one loop over them, and one over tokens; and what it attends with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from tinyxp import ops
from tinyxp.cache import Cache
from tinyxp.config import Config
from tinyxp.decoding import Decoder
from tinyxp.inputs import Inputs
from tinyxp.model import Context, block, run
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.sampling import greedy

SHORTEST = 512
"""Slots of the shortest cache; longer ones have 4 times as many, so that few lengths are compiled for."""
WIDE, NARROW = 128, 32
"""Columns of a prefill."""
AHEAD = 64
"""Tokens that a loop chooses before it returns."""


class Layer(NamedTuple):
    """One layer's part of a stacked cache, of which nothing is copied but what is read."""

    stack: jax.Array  # (L, b, g, s, hd)
    index: jax.Array  # ()


def linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, xp: Any) -> jax.Array:
    """``tinyxp.ops.linear``, a single row kept apart: XLA would compute it again for each output."""
    alone = math.prod(x.shape[:-1]) == 1
    return ops.linear(_kept_apart(x) if alone else x, weight, bias, xp=jnp)


def _kept_apart(x: jax.Array) -> jax.Array:
    """x, as the larger of itself and -inf, by an operation that XLA does not fuse into what follows."""
    pairs = jnp.stack((x, jnp.full_like(x, -jnp.inf)), axis=-1)
    window = (*(1 for _ in x.shape), 2)
    return jax.lax.reduce_window(pairs, -jnp.inf, jax.lax.max, window, window, "VALID")[..., 0]


def write_cache(cache: Any, new: jax.Array, start: Any, slots: Any, *, xp: Any) -> Any:
    """``tinyxp.ops.write_cache``, in place where XLA may: new must fit between start and the last slot."""
    if not isinstance(cache, Layer):
        return jax.lax.dynamic_update_slice_in_dim(cache, new, start, axis=2)
    zero = jnp.zeros_like(start)
    stack = jax.lax.dynamic_update_slice(
        cache.stack, new[None], (cache.index.astype(zero.dtype), zero, zero, start, zero)
    )
    return Layer(stack, cache.index)


def _slots(cache: Any, start: Any, size: int) -> jax.Array:
    """``size`` slots of a cache, from ``start`` on. (b, g, s, hd) or a Layer -> (b, g, size, hd)."""
    if not isinstance(cache, Layer):
        return jax.lax.dynamic_slice_in_dim(cache, start, size, axis=2)
    _, b, g, _, hd = cache.stack.shape
    return jax.lax.dynamic_slice(cache.stack, (cache.index, 0, 0, start, 0), (1, b, g, size, hd))[0]


BLOCK = 256
"""Slots of a long cache that are attended to at a time."""


def attention(q: jax.Array, k: Any, v: Any, visible: jax.Array, *, xp: Any, tap: Any = None) -> jax.Array:
    """``tinyxp.ops.attention`` in float32 at least, not tapped. Of a cache longer than a block only the
    blocks up to the last visible slot are read, and softmax is summed as they come (Milakov & Gimelshein,
    2018).
    """
    b, h, t, hd = q.shape
    keys = k.stack[0] if isinstance(k, Layer) else k
    g, s = keys.shape[1], visible.shape[3]
    wide = jnp.result_type(q.dtype, jnp.float32)
    scaled = (q.astype(wide) * (1.0 / math.sqrt(hd))).reshape(b, g, h // g, t, hd)
    visible = visible[:, :, None]  # (b or 1, 1, 1, t, s)
    size = BLOCK if t < s and s % BLOCK == 0 else s

    def attend(i: Any, state: Any) -> Any:
        top, total, heads = state
        start = i * size
        seen = jax.lax.dynamic_slice_in_dim(visible, start, size, axis=4)
        scores = jnp.where(seen, _scores(scaled, _slots(k, start, size).astype(wide)), -jnp.inf)
        higher = jnp.maximum(top, scores.max(-1, keepdims=True))
        e, kept = jnp.exp(scores - higher), jnp.exp(top - higher)
        more = _heads(e, _slots(v, start, size).astype(wide))
        return higher, total * kept + e.sum(-1, keepdims=True), heads * kept + more

    nothing = jnp.zeros((b, g, h // g, t, 1), wide)
    state = nothing + jnp.finfo(wide).min, nothing, jnp.zeros(scaled.shape, wide)
    if size == s:
        state = attend(0, state)
    else:
        used = jnp.where(visible.any((0, 1, 2, 3)), jnp.arange(s) + 1, 0).max()
        state = jax.lax.fori_loop(0, (used + size - 1) // size, attend, state)
    _, total, heads = state
    heads = heads / jnp.maximum(total, 1.0)  # the largest counts exp(0), so that less than 1 means nothing
    return heads.reshape(b, h, t, hd).astype(q.dtype)


def _scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """q (b, g, r, t, hd), k (b, g, s, hd) -> (b, g, r, t, s). For one query XLA's loops beat its products."""
    if q.shape[3] == 1:
        return jnp.sum(q * k[:, :, None], -1)[..., None, :]
    b, g, r, t, hd = q.shape
    return jnp.matmul(q.reshape(b, g, r * t, hd), k.mT).reshape(b, g, r, t, k.shape[2])


def _heads(weights: jax.Array, v: jax.Array) -> jax.Array:
    """weights (b, g, r, t, s), v (b, g, s, hd) -> (b, g, r, t, hd)."""
    b, g, r, t, s = weights.shape
    if t == 1:
        return jnp.sum(weights[..., 0, :, None] * v[:, :, None], -2)[..., None, :]
    return jnp.matmul(weights.reshape(b, g, r * t, s), v).reshape(b, g, r, t, v.shape[3])


class Stacked(Mapping[str, jax.Array]):
    """Parameters whose blocks are stacked, name within the block -> (L, ...), as a loop over them takes them.

    As a mapping it has every parameter under its own name; one of a block is sliced when it is asked for.
    """

    def __init__(self, params: Params) -> None:
        self.names = list(params)
        self.rest = {name: x for name, x in params.items() if not name.startswith("blocks.")}
        blocks = [params.block(i) for i in range(params.config.n_layers)]
        self.blocks = _stack(blocks)

    def __getitem__(self, name: str) -> jax.Array:
        if name in self.rest:
            return self.rest[name]
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


def stacked(params: Params) -> Stacked:
    """The parameters stacked: once for each Params, as long as those live."""
    if isinstance(params._arrays, Stacked):
        return params._arrays
    if params not in _stacked:
        _stacked[params] = Stacked(params)
    return _stacked[params]


def through(
    weights: dict[str, jax.Array], params: Params, x: jax.Array, cache: Any, ctx: Context, tap: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``tinyxp.model.blocks`` as a loop over stacked weights, compiled once for all of them."""

    def body(carry: Any, layer: Any) -> Any:
        x, keys, values = carry
        w, index = layer
        x, (k, v) = block(w, x, (Layer(keys, index), Layer(values, index)), ctx, tap)
        return (x, k.stack, v.stack), None

    layers = weights, jnp.arange(ctx.config.n_layers, dtype=cache.used.dtype)
    carry, _ = jax.lax.scan(body, (x, cache.keys, cache.values), layers)
    return carry  # type: ignore[no-any-return]


class Weights(NamedTuple):
    """What the compiled functions take of the parameters."""

    blocks: dict[str, jax.Array]
    rest: dict[str, jax.Array]


def _columns(
    weights: Weights, ids: jax.Array, cache: Cache, mask: jax.Array, columns: Any, config: Config
) -> tuple[jax.Array, Cache]:
    """Logits (b, n) after the first ``columns`` of ids (b, t), and the cache with those."""
    params = Params._unflatten(weights.rest.values(), (tuple(weights.rest), config))
    inputs, kernels = Inputs(params, ids, None, mask), Kernels(**params.backend.kernels)
    loop = partial(through, weights.blocks)
    logits, extended = run(inputs, cache, kernels, untapped, last=True, through=loop)
    assert extended is not None
    return logits[:, 0, :], extended._replace(used=cache.used + columns)


_extend = partial(jax.jit, static_argnames="config", donate_argnames="cache")(_columns)


class Ahead(NamedTuple):
    """The state of a loop that chooses tokens itself."""

    step: jax.Array  # ()
    new: jax.Array  # (b,) the last token of each row
    ended: jax.Array  # (b,) bool
    ids: jax.Array  # (b, AHEAD) what was chosen
    finite: jax.Array  # (b, AHEAD) bool: whether the logits were
    cache: Cache


@partial(jax.jit, static_argnames="config", donate_argnames="cache")
def _greedy(
    weights: Weights,
    new: jax.Array,
    ended: jax.Array,
    cache: Cache,
    steps: jax.Array,
    ends: jax.Array,
    allowed: jax.Array,
    config: Config,
) -> Ahead:
    """``Decoder.ahead``."""
    b = new.shape[0]
    one, real = jnp.asarray(1, cache.used.dtype), jnp.ones((b, 1), bool)
    ids, finite = jnp.zeros((b, AHEAD), new.dtype), jnp.ones((b, AHEAD), bool)

    def goes_on(s: Ahead) -> jax.Array:
        return (s.step < steps) & ~s.ended.all() & s.finite.all()

    def step(s: Ahead) -> Ahead:
        logits, extended = _columns(weights, s.new[:, None], s.cache, real, one, config)
        logits = jnp.where(allowed, logits, -jnp.inf)
        fine = (jnp.isfinite(logits) | ~allowed).all(1) | s.ended
        chosen = jnp.where(s.ended, 0, greedy(logits, xp=jnp).astype(s.new.dtype))
        return Ahead(
            s.step + 1,
            chosen,
            s.ended | ends[chosen],
            s.ids.at[:, s.step].set(chosen),
            s.finite.at[:, s.step].set(fine),
            extended,
        )

    return jax.lax.while_loop(goes_on, step, Ahead(jnp.zeros_like(steps), new, ended, ids, finite, cache))


class JaxDecoder(Decoder):
    """Compiles a step and two widths of prefill, one for long caches, for each of a few lengths of the cache.

    Columns are padded on the right; the slots of that padding are written over by the next. The blocks are
    stacked in a copy, which lives as long as the parameters do, unless they come from ``prepared``.
    """

    chunk = WIDE
    goes_ahead = True

    def __init__(self, params: Params, batch: int, length: int) -> None:
        found = stacked(params)
        self.weights = Weights(found.blocks, found.rest)
        self.steps = False
        super().__init__(params, batch, cache_length(length))

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        self.steps = ids.shape[1] == 1 and self.used > 0  # the last column of a prompt is none
        return super().__call__(ids, mask)

    def empty(self, batch: int, length: int) -> Cache:
        """A new cache, its layers stacked; zeros come from NumPy, since XLA compiles them for each shape."""
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
        short = slots <= 4 * SHORTEST  # beyond, one width has to do
        width = 1 if self.steps else NARROW if short and t <= NARROW else WIDE
        self.make_room(width)
        padding = ((0, 0), (0, width - t))
        real = np.pad(np.ones((b, t), dtype=bool) if mask is None else mask, padding)
        padded = np.pad(ids, padding, mode="edge").astype(self.index_dtype)  # of 0 a model may make NaN
        columns = np.asarray(t, self.index_dtype)
        config = self.params.config
        logits, self.cache = _extend(self.weights, padded, self.cache, real, columns, config=config)
        self.used += t
        return self.params.backend.to_numpy(logits)

    def make_room(self, columns: int) -> None:
        slots = self.cache.real.shape[1]
        more = cache_length(self.used + columns) - slots
        if more > 0:
            longer = self.empty(self.cache.real.shape[0], slots + more)
            self.cache = jax.tree.map(_put_first, longer, self.cache)

    def ahead(
        self, new: np.ndarray, ended: np.ndarray, steps: int, ends: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        steps = min(steps, AHEAD)
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
            config=self.params.config,
        )
        self.cache, done = state.cache, int(state.step)
        self.used += done
        return np.asarray(state.ids)[:, :done], np.asarray(state.finite)[:, :done]


def cache_length(length: int) -> int:
    """The lengths that caches have: the shortest and its multiples by 4."""
    found = SHORTEST
    while found < length:
        found *= 4
    return found


def _put_first(longer: jax.Array, x: jax.Array) -> jax.Array:
    """x at the beginning of a longer array, by NumPy: a cache grows seldom, and XLA would compile it."""
    if x.shape == longer.shape:
        return x
    host = np.zeros(longer.shape, longer.dtype)
    host[tuple(slice(size) for size in x.shape)] = np.asarray(x)
    return jax.device_put(host)
