"""The decoder that generation drives: it owns a cache, so a library may write in place and compile."""

from __future__ import annotations

import numpy as np

from tinyxp.cache import Cache, new_cache
from tinyxp.inputs import Inputs
from tinyxp.model import compute
from tinyxp.ops import Kernels, untapped
from tinyxp.params import Params
from tinyxp.typing import Array

CHUNK = 512
"""A longer prompt is fed in chunks of this many columns, so that scores take memory in proportion to t."""


class Decoder:
    """Feeds columns of ids to a model and returns each row's logits after its last real token.

    This one creates a new cache at each step, for libraries that cannot write into an array. A library that
    can, or that compiles, has its own.
    """

    chunk = CHUNK
    """Columns that are fed at a time."""
    loops = False
    """Whether ``decode_greedily`` can choose several tokens without returning between them."""

    def __init__(self, params: Params, batch: int, length: int, *, kernels: Kernels) -> None:
        self.params = params.join()
        self.kernels = kernels
        self.index_dtype = params.backend.index_dtype
        self.cache = self.empty_cache(batch, length)
        self.used = 0

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """ids (b, t), mask (b, t) True on real tokens -> logits (b, n), on NumPy."""
        size = self.chunk
        logits = self.feed(ids[:, :size], None if mask is None else mask[:, :size])
        for start in range(size, ids.shape[1], size):
            piece = slice(start, start + size)
            real = np.ones_like(ids[:, piece], dtype=bool) if mask is None else mask[:, piece]
            after = self.feed(ids[:, piece], None if mask is None else real)
            logits = np.where(real.any(axis=1, keepdims=True), after, logits)
        return logits

    def empty_cache(self, batch: int, length: int) -> Cache:
        """Return a new cache for ``batch`` rows and ``length`` columns."""
        return new_cache(self.params, batch, length)

    def feed(self, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Feed at most ``chunk`` columns. ids and mask (b, t) -> logits (b, n), on NumPy."""
        self.make_room(ids.shape[1])
        logits, self.cache = self.extend(ids, mask, self.cache)
        self.used += ids.shape[1]
        return self.params.backend.to_numpy(logits)[:, 0, :]

    def extend(self, ids: np.ndarray, mask: np.ndarray | None, cache: Cache) -> tuple[Array, Cache]:
        """Logits (b, 1, n) after columns whose ids were checked, and the cache with them."""
        backend, device = self.params.backend, self.params.device
        columns = backend.from_numpy(ids.astype(self.index_dtype), device=device)
        real = None if mask is None else backend.from_numpy(mask, device=device)
        inputs = Inputs(self.params, columns, None, real)
        logits, extended = compute(inputs, cache, self.kernels, untapped, last=True)
        assert extended is not None
        return logits, extended

    def decode_greedily(
        self, new: np.ndarray, ended: np.ndarray, steps: int, ends: np.ndarray, allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose the likeliest tokens after ``new`` (b,) without returning between them: up to ``steps``,
        until every row has ended or a logit is not finite. Only if ``loops``.

        ended (b,) bool; ends and allowed (n,) bool, which tokens end a row and which may be chosen
        -> ids (b, m), 0 in rows that have ended, and whether the logits of each were finite (b, m).
        """
        raise NotImplementedError(f"{type(self).__name__} does not loop")

    def make_room(self, columns: int) -> None:
        """Double the cache until it takes that many more columns."""
        slots = self.cache.real.shape[1]
        length = slots
        while length < self.used + columns:
            length *= 2
        if length > slots:
            self.cache = _lengthen(self.cache, length - slots, self.params)


class InPlaceDecoder(Decoder):
    """For libraries whose slices are views and whose write_cache writes in place: a step sees only the slots
    in use, and writes into them.
    """

    def feed(self, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        self.make_room(ids.shape[1])
        whole, end = self.cache, self.used + ids.shape[1]
        logits, after = self.extend(ids, mask, whole.first(end))
        whole.real[:, :end] = after.real  # type: ignore[index]
        self.cache = after._replace(keys=whole.keys, values=whole.values, real=whole.real)
        self.used = end
        return self.params.backend.to_numpy(logits)[:, 0, :]


def _lengthen(cache: Cache, more: int, params: Params) -> Cache:
    """Return the cache with ``more`` empty slots."""
    concat, spare = params.xp.concat, new_cache(params, cache.real.shape[0], more)
    return cache._replace(
        keys=tuple(concat(pair, axis=2) for pair in zip(cache.keys, spare.keys, strict=True)),
        values=tuple(concat(pair, axis=2) for pair in zip(cache.values, spare.values, strict=True)),
        real=concat((cache.real, spare.real), axis=1),
    )
