"""Laws of generation: streaming, the end of positions, long texts, and rejected arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.laws.drawing import check_rejects
from tinyxp.testing.laws.generation import (
    FEW,
    OWN,
    check_drawn,
    check_greedy,
    draw_limits,
    draw_model,
    draw_settings,
)
from tinyxp.testing.laws.padding import draw_padded
from tinyxp.testing.strategies import random_arrays, seeds

law = laws_of("model", "generation", OWN, "generate params")


@law("Streaming yields the columns of generate, one for each step.", examples=15)
def stream_yields_what_generate_returns(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw)
    ids, mask = draw_padded(subject, draw, model)
    n = model.vocab_size
    chosen: dict[str, Any] = {"mask": mask}
    if draw("sampled", st.booleans()):
        chosen |= draw_settings(draw, n)
    if draw("limited", st.booleans()):
        chosen |= draw_limits(draw, n) | {
            "pad": draw("pad", st.integers(0, 3)),
            "cache": draw("cache", st.booleans()),
        }
        if model.config.position == "rope":
            chosen["overflow"] = draw("overflow", st.sampled_from(["raise", "slide"]))
    free = model.generate(ids, 5, **chosen)
    compare(subject, model, ids, free, chosen)
    chosen["eos"] = draw("eos", st.sampled_from(sorted({int(i) for i in free.flat})))
    compare(subject, model, ids, model.generate(ids, 5, **chosen), chosen)


def compare(subject: Any, model: Any, ids: Any, expected: np.ndarray, chosen: dict[str, Any]) -> None:
    """Stream with these settings, and compare with ids (b, m)."""
    stream = subject.modules.generation.stream(model.params, ids, 5, **chosen)
    steps = [np.asarray(subject.host(step)) for step in stream]
    subject.equal(np.stack(steps, axis=1), expected, "ids streamed, side by side")


@law("Without a seed, sampled generations differ every time.", examples=2)
def no_seed_says_another_thing(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw, position="rope", vocab_size=(6, 12))
    ids = [[0] * 5] * 2
    texts = [model.generate(ids, 12, temperature=1e9).tolist() for _ in range(2)]
    for _ in range(2):
        stream = subject.modules.generation.stream(model.params, ids, 12, temperature=1e9)
        texts.append(np.stack([np.asarray(subject.host(step)) for step in stream], axis=1).tolist())
    subject.equal(len({str(row) for text in texts for row in text}), 8, "how many of 8 rows differ")


@law(
    "Learned positions end at max_seq_len: the last new id needs none, and one more is rejected, with the "
    "numbers, before anything is computed. Padding does not count.",
    examples=15,
)
def learned_positions_end(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw, position="learned", rope_scaling=None)
    ids, mask = draw_padded(subject, draw, model)
    end = model.max_seq_len
    count = end - int(mask.sum(axis=1).max()) + 1
    cached = draw("cache", st.booleans())
    new = model.generate(ids, count, mask=mask, cache=cached)
    subject.equal(new.shape, (len(ids), count), "shape")
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    check_greedy(subject, model, prompts, new)
    unusable = model.but(**{"embed.weight": np.full((model.vocab_size, model.config.d_model), np.nan)})
    message = f"{end + 1} > {end}, the max_seq_len"
    check_rejects(message, unusable.generate, ids, count + 1, mask=mask, cache=cached)


@law('overflow="slide" continues from the last max_seq_len ids, with positions from 0.', examples=15)
def sliding_sees_the_last_ids(subject: Any, draw: Draw) -> None:
    if subject.pooled:
        model, longest = draw_model(subject, draw, position="learned"), 5
    else:
        model, longest = draw_model(subject, draw, max_seq_len=(1, 8)), 10
    limit = SimpleNamespace(vocab_size=model.vocab_size, max_seq_len=longest)
    ids, mask = draw_padded(subject, draw, limit)
    cached = draw("cache", st.booleans())
    new = model.generate(ids, 9, mask=mask, overflow="slide", cache=cached)
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    check_greedy(subject, model, prompts, new, window=model.max_seq_len)


@law(
    "Logits that are not finite raise an error naming the first such row and its step; a row that has ended "
    "may have any.",
    source="jax.random.categorical answers 0 to NaN",
    examples=15,
)
def logits_that_are_not_finite_are_refused(subject: Any, draw: Draw) -> None:
    model = draw_model(subject, draw, tie_embeddings=False, vocab_size=(4, 12))
    ids = model.ids(draw) % 2
    drawn = draw_settings(draw, model.vocab_size) | {
        "temperature": draw("heat", st.sampled_from([0.0, 10.0]))
    }
    free = model.generate(ids, 4, **drawn)
    unseen = sorted({int(i) for i in free[:, :3].flat} - {0, 1})
    assume(unseen)
    bad = draw("bad", st.sampled_from(unseen))
    table = model.arrays["embed.weight"].copy()
    table[bad] = draw("value", st.sampled_from([np.nan, np.inf]))
    broken = model.but(**{"embed.weight": table})
    head = np.array(model.arrays["head.weight"])
    head[bad, 0] = np.nan
    check_rejects("row 0 are not finite at step 0", model.but(**{"head.weight": head}).generate, ids, 4)
    step = int(np.flatnonzero((free == bad).any(axis=0))[0])
    row = int(np.flatnonzero(free[:, step] == bad)[0])
    cached = draw("cache", st.booleans())
    with np.errstate(invalid="ignore"):
        until = broken.generate(ids, step + 1, cache=cached, **drawn)
        subject.equal(until, free[:, : step + 1], "ids until then")
        message = f"row {row} are not finite at step {step + 1}"
        check_rejects(message, broken.generate, ids, 4, cache=cached, **drawn)
        ended = broken.generate(ids, 4, cache=cached, eos=bad, pad=bad, **drawn)
    subject.equal(ended, model.generate(ids, 4, eos=bad, pad=bad, **drawn), f"ids that end with {bad}")


@law(
    "A prompt of any length is read completely, with any ends of rows, and a text of any length continues.",
    source="prompts are fed in pieces, and caches grow",
    examples=1,
)
def long_prompts_and_long_texts(subject: Any, draw: Draw) -> None:
    config = FEW[0]
    model = subject.build(config, random_arrays(config, draw("seed", seeds())))
    width, count = subject.modules.decoding.CHUNK + 20, subject.modules.generation.ROOM + 6
    columns = np.arange(width)
    mask = np.stack([columns < width, columns < 30, columns >= width - 10, columns % 3 > 0] * 3)
    ids = np.random.default_rng(draw("seed of ids", seeds())).integers(0, config.vocab_size, mask.shape)
    prompts = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    drawn = {"temperature": 2.0, "seed": draw("seed of draws", seeds())}
    check_drawn(subject, model, prompts, model.generate(ids, count, mask=mask, **drawn), drawn)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"max_new_tokens": -1}, "max_new_tokens is -1"),
    ({"max_new_tokens": 1.5}, "max_new_tokens is 1.5"),
    ({"temperature": -0.5}, "temperature is -0.5"),
    ({"temperature": float("nan")}, "temperature is nan"),
    ({"top_k": 0}, "top_k is 0"),
    ({"top_p": 1.5}, "top_p is 1.5"),
    ({"seed": -3}, "seed is -3"),
    ({"eos": 7}, "eos is 7"),
    ({"eos": [2, -1]}, "eos is -1"),
    ({"pad": None}, "pad is None"),
    ({"overflow": "wrap"}, "overflow is 'wrap'"),
    ({"cache": "no"}, "cache is 'no'"),
    ({"vocab_size": 0}, "vocab_size is 0"),
    ({"mask": [[1, 1], [0, 0]]}, "mask has no real token in row 1"),
    ({"mask": [[1, 1]]}, "mask has shape (1, 2)"),
    ({"ids": [[3, 7], [0, 0]]}, "ids holds 7"),
    ({"ids": [[3, -1], [0, 0]]}, "ids holds -1"),
    ({"ids": [3, 1]}, "ids has shape (2,)"),
)
"""Arguments -> the message of the error, for a vocabulary of 7."""


@law(
    "An argument outside its limits raises ValueError naming it and its value, in generate and in stream.",
    examples=1,
)
def bad_arguments_of_generate_are_named(subject: Any, draw: Draw) -> None:
    model = subject.build(FEW[0], random_arrays(FEW[0]))
    for change, message in REFUSED:
        arguments = {"ids": [[3, 1], [0, 2]], "max_new_tokens": 3} | change
        for call in (subject.modules.generation.generate, subject.modules.generation.stream):
            check_rejects(message, call, model.params, **arguments)
