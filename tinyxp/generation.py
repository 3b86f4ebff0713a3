"""Generation: prefill, then one token a step, chosen on the host so that a seed means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinyxp.checks import as_flag, as_integer, is_integer
from tinyxp.decoding import Decoder
from tinyxp.engine import new_decoder
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask, as_params
from tinyxp.params import Params
from tinyxp.sampling import Sampler
from tinyxp.typing import Array, Namespace

ROOM = 256
"""New columns that a cache has room for at first. It grows as they are used: most texts end early."""


def generate(
    params: Params,
    ids: Any,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    eos: int | Iterable[int] | None = None,
    pad: int = 0,
    mask: Any = None,
    cache: bool = True,
    overflow: str = "raise",
    vocab_size: int | None = None,
    xp: Namespace | None = None,
) -> Array:
    """Continue each row of ids and return the new ids alone.

    Shapes: ids (b, t) integers, mask (b, t) True on real tokens (padding on either side) -> (b, m) integers
    of the parameters' library, m at most ``max_new_tokens``.

    ``temperature`` 0 takes the likeliest token. Above 0 a token is drawn after temperature, ``top_k`` and
    ``top_p``, in that order. Row r takes its uniforms from ``numpy.random.default_rng([seed, r])``, and a
    token is the inverse of the cumulative distribution in id order. So a seed gives the same ids on every
    backend and in every batch, except for a draw within rounding of a boundary. A row ends with an id of
    ``eos`` (one, several or None), which it keeps, and is filled with ``pad`` from there. Generation ends
    when all rows have ended. ``cache=False`` runs the whole sequence again at each step, on purpose.
    ``overflow="slide"`` continues beyond max_seq_len with the last max_seq_len ids, positions from 0;
    "raise" raises before any computation if positions are learned (rotary ones may exceed max_seq_len).
    ``vocab_size`` limits the ids to those below it, for a model with a larger vocabulary than its tokenizer.

    Raise ValueError naming the argument and its limit, or the step whose logits are not finite.
    """
    run = _check(params, ids, max_new_tokens, _Settings(eos, pad, mask, cache, overflow, vocab_size), xp)
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    steps = list(_steps(run, sampler, loop=True))
    return _as_ids(run, np.stack(steps, axis=1) if steps else run.ids[:, :0])


def stream(
    params: Params,
    ids: Any,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    eos: int | Iterable[int] | None = None,
    pad: int = 0,
    mask: Any = None,
    cache: bool = True,
    overflow: str = "raise",
    vocab_size: int | None = None,
    xp: Namespace | None = None,
) -> Iterator[Array]:
    """Continue each row of ids, yielding the next id of every row, (b,), as soon as it is known.

    The ids are those that ``generate`` returns for the same arguments, which it documents. The arguments are
    checked at the call, before the first step.
    """
    run = _check(params, ids, max_new_tokens, _Settings(eos, pad, mask, cache, overflow, vocab_size), xp)
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    return (_as_ids(run, step) for step in _steps(run, sampler))


class _Settings(NamedTuple):
    """The arguments of a generation that neither choose among likely tokens nor convert anything."""

    eos: int | Iterable[int] | None
    pad: int
    mask: Any
    cache: bool
    overflow: str
    vocab_size: int | None


@dataclass(frozen=True)
class _Run:
    """The checked arguments of one generation."""

    params: Params
    ids: np.ndarray  # (b, t)
    mask: np.ndarray  # (b, t) bool
    max_new_tokens: int
    eos: list[int]
    pad: int
    cached: bool
    window: int | None  # how many ids a step may see; None for no limit
    vocab_size: int  # ids below this may be chosen


def _check(params: Params, ids: Any, max_new_tokens: int, settings: _Settings, xp: Namespace | None) -> _Run:
    eos, pad, mask, cache, overflow, vocab_size = settings
    params = as_params(params, xp)
    config, n = params.config, params.config.vocab_size
    if not params.backend.is_concrete(params["embed.weight"]):
        raise ValueError("params have no values here (under a trace, or on meta); generation needs them")
    ids = as_host_integers(ids, Bounds("ids", n, "the vocabulary size"))
    mask = np.ones(ids.shape, dtype=bool) if mask is None else as_host_mask(mask, ids.shape)
    lengths = mask.sum(axis=1)
    if not lengths.all():
        raise ValueError(f"mask has no real token in row {int(np.argmin(lengths))}")
    max_new_tokens = as_integer("max_new_tokens", max_new_tokens, low=0)
    pad = as_integer("pad", pad, low=-(2**31), high=2**31)
    vocab_size = n if vocab_size is None else as_integer("vocab_size", vocab_size, low=1)
    ends = [] if eos is None else [eos] if is_integer(eos) or not isinstance(eos, Iterable) else list(eos)
    ends = [as_integer("eos", end, low=0, high=n) for end in ends]
    if overflow not in ("raise", "slide"):
        raise ValueError(f"overflow is {overflow!r}; it must be 'raise' or 'slide'")
    needed = int(lengths.max()) + max_new_tokens - 1  # the last new token is never fed back
    if overflow == "raise" and config.position == "learned" and needed > config.max_seq_len:
        raise ValueError(
            f"a prompt of {lengths.max()} and max_new_tokens {max_new_tokens} need {needed} positions: "
            f"{needed} > {config.max_seq_len}, the max_seq_len of this model"
        )
    return _Run(
        params=params,
        ids=ids,
        mask=mask,
        max_new_tokens=max_new_tokens,
        eos=ends,
        pad=pad,
        cached=as_flag("cache", cache),
        window=config.max_seq_len if overflow == "slide" else None,
        vocab_size=min(n, vocab_size),
    )


def _steps(run: _Run, sampler: Sampler, *, loop: bool = False) -> Iterator[np.ndarray]:
    """The next id of each row, (b,), step by step, until every row has ended.

    With ``loop`` nothing waits for single steps, so a decoder may choose the likeliest tokens itself.
    """
    b, t = run.ids.shape
    streams = sampler.streams(b)
    rows = [row[real].tolist() for row, real in zip(run.ids, run.mask, strict=True)]
    ended = np.zeros(b, dtype=bool)
    decoder, new = None, np.zeros(b, dtype=np.int64)
    loop = loop and sampler.temperature == 0.0 and run.window is None
    for step in range(run.max_new_tokens):
        outgrown = run.window is not None and max(map(len, rows)) > run.window
        if outgrown or not run.cached:
            logits = _recompute(run, rows)
        elif decoder is None:
            decoder = new_decoder(run.params, b, t + min(run.max_new_tokens - 1, ROOM))
            logits = decoder(run.ids, None if run.mask.all() else run.mask)
        elif loop and decoder.loops:
            yield from _greedy_steps(run, decoder, new, ended, step)
            return
        else:
            logits = decoder(new[:, None])
        logits = logits[:, : run.vocab_size].astype(np.float64)
        _check_finite(np.isfinite(logits).all(axis=1) | ended, step)
        new = np.where(ended, 0, sampler.choose(np.where(ended[:, None], 0.0, logits), streams))
        yield np.where(ended, run.pad, new)
        ended |= np.isin(new, run.eos)
        if ended.all():
            return
        for row, token in zip(rows, new.tolist(), strict=True):
            row.append(token)


def _greedy_steps(
    run: _Run, decoder: Decoder, new: np.ndarray, ended: np.ndarray, step: int
) -> Iterator[np.ndarray]:
    """The likeliest id of each row, (b,), from ``step`` on, as many at a time as the decoder chooses."""
    n = run.params.config.vocab_size
    ends, allowed = np.isin(np.arange(n), run.eos), np.arange(n) < run.vocab_size
    while step < run.max_new_tokens and not ended.all():
        ids, finite = decoder.decode_greedily(new, ended, run.max_new_tokens - step, ends, allowed)
        for new, row_finite in zip(ids.T, finite.T, strict=True):
            _check_finite(row_finite, step)
            yield np.where(ended, run.pad, new)
            ended = ended | ends[new]
            step += 1


def _check_finite(finite: np.ndarray, step: int) -> None:
    if not finite.all():
        raise ValueError(f"logits of row {int(np.argmin(finite))} are not finite at step {step}")


def _recompute(run: _Run, rows: list[list[int]]) -> np.ndarray:
    """The last logits of each row (b, n), computed afresh from all ids that a step may see."""
    seen = [row if run.window is None else row[-run.window :] for row in rows]
    width = max(map(len, seen))
    ids = np.asarray([[0] * (width - len(row)) + row for row in seen])
    mask = np.asarray([[False] * (width - len(row)) + [True] * len(row) for row in seen])
    decoder = new_decoder(run.params, len(rows), width)
    return decoder(ids, None if mask.all() else mask)


def _as_ids(run: _Run, ids: np.ndarray) -> Array:
    backend = run.params.backend
    return backend.from_numpy(ids.astype(backend.index_dtype), device=run.params.device)
