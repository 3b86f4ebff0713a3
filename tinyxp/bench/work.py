"""The work that is measured: functions without arguments that return when the work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxp.cache import new_cache
from tinyxp.engine import engine_of, new_decoder
from tinyxp.generation import generate
from tinyxp.model import extend
from tinyxp.params import Params
from tinyxp.registry import Backend

Work = Callable[[], Any]


def infer(backend: Backend, work: Work) -> Work:
    """Return the work as a decoder does it: without gradients, and finished when it returns."""

    def done() -> Any:
        with backend.inference():
            return backend.synchronize(work())

    return done


def draw_ids(params: Params, batch: int, tokens: int) -> np.ndarray:
    """Return random ids (batch, tokens); the time does not depend on their values."""
    return np.random.default_rng(0).integers(0, params.config.vocab_size, (batch, tokens))


def prefill(params: Params, batch: int, tokens: int) -> Work:
    """A new decoder reads a prompt. Without a cache, a step at that position does the same work."""
    ids = draw_ids(params, batch, tokens)
    return lambda: new_decoder(params, batch, tokens)(ids)


def step(params: Params, batch: int, position: int, steps: int) -> Work:
    """One token with the cache. ``steps`` calls are centred on the position, within the context."""
    start = max(1, min(position - steps // 2, params.config.max_seq_len - steps))
    decoder = new_decoder(params, batch, start + steps)
    ids = draw_ids(params, batch, start)
    decoder(ids)
    return lambda: decoder(ids[:, :1])


def first_token(params: Params, tokens: int) -> Work:
    """``generate`` from a prompt to the first new token."""
    ids = draw_ids(params, 1, tokens)
    return lambda: generate(params, ids, 1)


def head(params: Params, tokens: int, *, last: bool) -> Work:
    """A prompt with the head at every position, or at the last only."""
    backend, kernels = params.backend, engine_of(params.backend).kernels
    ids = draw_ids(params, 1, tokens)

    def logits(params: Params, ids: Any) -> Any:
        cache = new_cache(params, 1, tokens)
        return extend(params, ids, cache, kernels=kernels, last=last)[0]

    compiled = logits if backend.eager else backend.jit(logits)
    columns = backend.from_numpy(ids, device=params.device)
    return infer(backend, lambda: compiled(params, columns))
