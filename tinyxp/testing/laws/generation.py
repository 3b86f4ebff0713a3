"""Laws of generation: each new id follows from the forward pass over everything before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.config import GPT2, Config
from tinyxp.registry import backend
from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.strategies import random_arrays, seeds
from tinyxp.testing.subjects.backends import build_decoder
from tinyxp.testing.subjects.base import ROUNDING

OWN = "tinyxp's own contract: generate"
Rows = Sequence[Sequence[int]]

FEW = (
    Config(vocab_size=7, n_layers=1, d_model=6, d_ff=5, n_heads=2, n_kv_heads=1, head_dim=4),
    Config(
        **GPT2 | {"tie_embeddings": False},
        vocab_size=6,
        max_seq_len=12,
        n_layers=1,
        d_model=6,
        n_heads=2,
        n_kv_heads=2,
        d_ff=4,
    ),
)
"""One with rotary and one with learned positions: a compiled generation costs two compilations for each."""

law = laws_of("model", "generation", OWN, "generate params")


@cache
def numpy_subject() -> Any:
    return build_decoder(backend(np), name="reference", recipe="")


def on_numpy(model: Any) -> Any:
    """Return the model of these weights in float64 on NumPy, computed by tinyxp itself."""
    return numpy_subject().build(model.config, model.arrays)


def draw_model(subject: Any, draw: Draw, **fixed: Any) -> Any:
    """Draw ``subject.model``, or one of ``FEW`` with the fields of ``fixed`` if pooled."""
    if not subject.pooled:
        return subject.model(draw, **fixed)
    plain = {name: x for name, x in fixed.items() if not isinstance(x, tuple)}
    fits = [c for c in FEW if all(getattr(c, name) == x for name, x in plain.items())]
    config = draw("config", st.sampled_from(fits))
    return subject.build(config, random_arrays(config, draw("seed", seeds())))


def draw_settings(draw: Draw, n: int) -> dict[str, Any]:
    """Draw the settings of a sampled generation, with a seed."""
    options = {
        "temperature": draw("temperature", st.sampled_from([1.0, 0.5, 2.0, 10.0])),
        "top_k": draw("top_k", st.none() | st.integers(1, n + 1)),
        "top_p": draw("top_p", st.none() | st.sampled_from([0.9, 0.5, 1.0])),
        "seed": draw("seed of draws", st.integers(0, 2**32)),
    }
    return {name: x for name, x in options.items() if x is not None}


def draw_limits(draw: Draw, n: int) -> dict[str, Any]:
    """Draw a vocab_size, or none."""
    size = draw("vocab_size", st.none() | st.integers(1, n + 2))
    return {} if size is None else {"vocab_size": size}


def scores(model: Any, prompt: Sequence[int], new: Sequence[int], window: int | None = None) -> np.ndarray:
    """Return NumPy's logits (m, n) for each new id of a row, given all before it or the last ``window``."""
    whole = [*prompt, *new]
    theirs = on_numpy(model)
    if window is None or len(whole) - 1 <= window:
        return np.asarray(theirs.forward([whole[:-1]])[0, len(prompt) - 1 :])
    ends = range(len(prompt), len(whole))
    return np.stack([theirs.forward([whole[max(0, e - window) : e]])[0, -1] for e in ends])


def check_greedy(subject: Any, model: Any, prompts: Rows, new: np.ndarray, **more: Any) -> None:
    """Raise AssertionError unless each new id has the largest logit, up to rounding."""
    size, window = more.get("vocab_size", model.vocab_size), more.get("window")
    for r, (prompt, row) in enumerate(zip(prompts, new.tolist(), strict=True)):
        if row:
            before = scores(model, prompt, row, window)[:, :size]
            chosen = np.asarray([s[i] if i < len(s) else -math.inf for s, i in zip(before, row, strict=True)])
            subject.close(chosen, before.max(axis=-1), f"logits of the ids {row} that row {r} continues with")


def assume_decided(subject: Any, model: Any, prompts: Rows, new: np.ndarray) -> None:
    """Reject an example whose greedy ids are decided by rounding."""
    for prompt, row in zip(prompts, new.tolist(), strict=True):
        if row and model.vocab_size > 1:
            best = np.sort(scores(model, prompt, row), axis=-1)
            scale = max(1.0, float(np.abs(best).max()))
            assume((best[:, -1] - best[:, -2]).min() > ROUNDING[subject.dtype] * scale)


@law("Each greedy id is the argmax of the forward pass over everything before it.")
def greedy_is_forward_again_and_again(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw, max_seq_len=(3, 16))
    ids = model.ids(draw)
    room = model.max_seq_len - ids.shape[1] + 1 if model.config.position == "learned" else 7
    count = draw("count", st.integers(0, min(room, 7)))
    more = draw_limits(draw, model.vocab_size)
    plain: list[dict[str, Any]] = [{}, {"temperature": 0}, {"temperature": 0.0, "top_k": 3, "seed": 1}]
    new = model.generate(ids, count, **more, **draw("settings", st.sampled_from(plain)))
    subject.equal(new.shape, (len(ids), count), "shape")
    subject.equal(new.dtype.kind, "i", "kind of dtype")
    check_greedy(subject, model, ids.tolist(), new, **more)


@law("cache=False gives the ids of cache=True.", examples=15)
def generation_without_a_cache(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw)
    ids, mask = draw_padded(subject, draw, model)
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    new = model.generate(ids, 5, mask=mask)
    assume_decided(subject, model, prompts, new)
    subject.equal(model.generate(ids, 5, mask=mask, cache=False), new, "ids without a cache")


@law("A row of a batch, padded on either side or on both, continues as it does alone.", examples=15)
def padded_rows_go_on_as_alone(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw)
    ids, mask = draw_padded(subject, draw, model)
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    new = model.generate(ids, 5, mask=mask)
    check_greedy(subject, model, prompts, new)
    assume_decided(subject, model, prompts, new)
    solo = on_numpy(model) if subject.pooled else model  # one row is another shape
    for r, prompt in enumerate(prompts):
        subject.equal(new[r], solo.generate([prompt], 5)[0], f"ids of row {r}, beside the same row alone")


@law(
    "With a seed each id inverts the cumulative distribution of the forward pass at the next uniform of "
    "default_rng([seed, row]), on every library and in every batch."
)
def a_seed_means_the_same_everywhere(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw)
    ids, mask = draw_padded(subject, draw, model)
    options, more = draw_settings(draw, model.vocab_size), draw_limits(draw, model.vocab_size)
    cached = draw("cache", st.booleans())
    new = model.generate(ids, 5, mask=mask, cache=cached, **options, **more)
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    check_drawn(subject, model, prompts, new, options, **more)


def check_drawn(
    subject: Any, model: Any, prompts: Rows, new: np.ndarray, options: dict[str, Any], **more: Any
) -> None:
    """Raise AssertionError unless each id inverts the cumulative distribution at its uniform."""
    slack, size = ROUNDING[subject.dtype], more.get("vocab_size", model.vocab_size)
    for r, (prompt, row) in enumerate(zip(prompts, new.tolist(), strict=True)):
        uniforms = np.random.default_rng([options["seed"], r]).random(len(row))
        before = scores(model, prompt, row)[:, :size].tolist()
        for step, (s, u, found) in enumerate(zip(before, uniforms, row, strict=True)):
            p = distribution(s, slack, options)
            low, high = sum(p[:found]), sum(p[: found + 1])
            if found >= len(p) or p[found] == 0.0 or not low - slack <= u <= high + slack:
                raise AssertionError(
                    f"row {r} continues with {found} at step {step}, where u is {u} and the cumulative "
                    f"distribution {np.cumsum(p).tolist()}"
                )


def distribution(logits: list[float], rounding: float, options: dict[str, Any]) -> list[float]:
    """Apply temperature, top_k and top_p in plain Python. Reject examples that rounding decides."""
    top = max(logits)
    masses = [math.exp((x - top) / options["temperature"]) for x in logits]
    order = sorted(range(len(masses)), key=lambda i: (-masses[i], i))
    kept = order[: options.get("top_k")]
    if kept != order:
        assume(masses[kept[-1]] - masses[order[len(kept)]] > rounding)
    top_p = options.get("top_p", 1.0)
    if top_p < 1.0:
        total, mass = sum(masses[i] for i in kept), 0.0
        nucleus: list[int] = []
        for i in kept:
            assume(abs(mass - top_p) > 1e-6 + rounding)
            if nucleus and mass >= top_p:
                break
            nucleus.append(i)
            mass += masses[i] / total
        kept = nucleus
    total = sum(masses[i] for i in kept)
    return [m / total if i in kept else 0.0 for i, m in enumerate(masses)]


@law(
    "A row ends with its first eos, and pad follows; generation ends with the last row, and no row is "
    "affected by the end of another.",
    examples=15,
)
def rows_end_one_by_one(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw)
    ids = model.ids(draw)
    options = draw_settings(draw, model.vocab_size) | {
        "temperature": draw("heat", st.sampled_from([0.0, 1.0, 10.0]))
    }
    free = model.generate(ids, 6, **options)
    spoken = st.sampled_from(sorted({int(i) for i in free.flat}))
    eos = draw("eos", spoken | st.lists(spoken | st.integers(0, model.vocab_size - 1), max_size=3))
    pad = draw("pad", st.integers(-1, model.vocab_size))
    ends = [eos] if isinstance(eos, int) else eos
    rows = []
    for row in free.tolist():
        last = next((i for i, x in enumerate(row) if x in ends), len(row) - 1)
        rows.append(row[: last + 1])
    width = max(map(len, rows))
    expected = [row + [pad] * (width - len(row)) for row in rows]
    subject.equal(model.generate(ids, 6, eos=eos, pad=pad, **options), expected, f"ids that end with {eos}")
    filled = [row + [0] * (width - len(row)) for row in rows]
    subject.equal(model.generate(ids, 6, eos=eos, **options), filled, f"ids that end with {eos}, then 0")
