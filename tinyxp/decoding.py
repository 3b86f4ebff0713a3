"""The decoder that generation drives: it owns a cache, so its backend may write in place and compile."""

from __future__ import annotations

import numpy as np

from tinyxp.cache import Cache, new_cache
from tinyxp.model import extend
from tinyxp.params import Params

CHUNK = 512
"""A longer prompt is fed in pieces of this many columns, so that scores take memory in proportion to t."""


class Decoder:
    """Feeds columns of ids to a model and returns each row's logits after its last real token.

    This one runs ``extend`` with the backend's kernels; a backend that compiles has its own.
    """

    def __init__(self, params: Params, batch: int, length: int) -> None:
        self.params = params
        self.cache = new_cache(params, batch, length)
        self.used = 0

    def __call__(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """ids (b, t), mask (b, t) True on real tokens -> logits (b, n), on NumPy."""
        logits = self.feed(ids[:, :CHUNK], None if mask is None else mask[:, :CHUNK])
        for start in range(CHUNK, ids.shape[1], CHUNK):
            piece = slice(start, start + CHUNK)
            real = np.ones_like(ids[:, piece], dtype=bool) if mask is None else mask[:, piece]
            after = self.feed(ids[:, piece], None if mask is None else real)
            logits = np.where(real.any(axis=1, keepdims=True), after, logits)
        return logits

    def feed(self, ids: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The same for at most CHUNK columns."""
        self.make_room(ids.shape[1])
        kernels = self.params.backend.kernels
        logits, self.cache = extend(self.params, ids, self.cache, mask=mask, kernels=kernels, last=True)
        self.used += ids.shape[1]
        return self.params.backend.to_numpy(logits)[:, 0, :]

    def make_room(self, columns: int) -> None:
        """Doubles the cache until it takes that many more columns."""
        slots = self.cache.real.shape[1]
        length = slots
        while length < self.used + columns:
            length *= 2
        if length > slots:
            self.cache = _lengthened(self.cache, length - slots, self.params)


def new_decoder(params: Params, batch: int, length: int) -> Decoder:
    """The backend's decoder for ``batch`` rows, with room for ``length`` columns at first."""
    return (params.backend.decoder or Decoder)(params, batch, length)


def _lengthened(cache: Cache, more: int, params: Params) -> Cache:
    """The cache with ``more`` empty slots."""
    concat, spare = params.xp.concat, new_cache(params, cache.real.shape[0], more)
    return cache._replace(
        keys=tuple(concat(pair, axis=2) for pair in zip(cache.keys, spare.keys, strict=True)),
        values=tuple(concat(pair, axis=2) for pair in zip(cache.values, spare.values, strict=True)),
        real=concat((cache.real, spare.real), axis=1),
    )
