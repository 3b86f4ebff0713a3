"""The pieces of work that are measured, as functions without arguments that return when it is done."""

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


def inferred(backend: Backend, work: Work) -> Work:
    """The same work as a decoder does it: without gradients, where a library keeps account of them, and done
    when it returns."""

    def done() -> Any:
        with backend.inference():
            return backend.synchronize(work())

    return done


def ids_of(params: Params, batch: int, tokens: int) -> np.ndarray:
    """Some ids (batch, tokens); which ones makes no difference to the time."""
    return np.random.default_rng(0).integers(0, params.config.vocab_size, (batch, tokens))


def prefill(params: Params, batch: int, tokens: int) -> Work:
    """A fresh decoder reads a prompt: also what a step costs without a cache, at that position."""
    ids = ids_of(params, batch, tokens)
    return lambda: new_decoder(params, batch, tokens)(ids)


def step(params: Params, batch: int, position: int, steps: int) -> Work:
    """One token with the cache; ``steps`` calls lie around that position, within the context."""
    start = max(1, min(position - steps // 2, params.config.max_seq_len - steps))
    decoder = new_decoder(params, batch, start + steps)
    ids = ids_of(params, batch, start)
    decoder(ids)
    return lambda: decoder(ids[:, :1])


def first_token(params: Params, tokens: int) -> Work:
    """``generate`` from a prompt to the first new token."""
    ids = ids_of(params, 1, tokens)
    return lambda: generate(params, ids, 1)


def head(params: Params, tokens: int, *, last: bool) -> Work:
    """A prompt with the head at every position, or at the last alone."""
    backend, kernels = params.backend, engine_of(params.backend).kernels
    ids = ids_of(params, 1, tokens)

    def logits(params: Params, ids: Any) -> Any:
        cache = new_cache(params, 1, tokens)
        return extend(params, ids, cache, kernels=kernels, last=last)[0]

    compiled = logits if backend.eager else backend.jit(logits)
    columns = backend.from_numpy(ids, device=params.device)
    return inferred(backend, lambda: compiled(params, columns))
