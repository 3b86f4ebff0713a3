"""The decoders that generation drives: prompts in pieces, padding, caches that grow; JAX's greedy loop."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import distance, drawn, host, libraries
from tinyxp import Config, Params, forward, generate, stream
from tinyxp.config import GPT2
from tinyxp.engine import new_decoder
from tinyxp.shapes import parameter_shapes

SMALL: dict[str, Any] = {"vocab_size": 23, "n_layers": 2, "d_model": 8, "d_ff": 10, "max_seq_len": 640}
CONFIGS = {
    "llama": Config(**SMALL, n_heads=4, n_kv_heads=2),
    "gpt2": Config(**GPT2 | SMALL, n_heads=2, n_kv_heads=2),
}
WIDTHS = (1, 2, 31, 32, 33, 127, 128, 129, 300, 513)
LIBRARIES = pytest.mark.parametrize("library", libraries("numpy", "torch", "jax", "strict"))
NEAR = 3e-5
"""Float32 logits of size 5 over hundreds of keys."""


@cache
def params(name: str, library: str) -> Params:
    return drawn(CONFIGS[name], 0.4).to(tinyxp.backend(library).xp)


@cache
def exactly(name: str) -> Params:
    return drawn(CONFIGS[name], 0.4).to(dtype="float64")


class Fed:
    """A decoder beside the rows that it was fed, without their padding."""

    def __init__(self, name: str, library: str, length: int, batch: int = 3) -> None:
        self.name, self.decoder = name, new_decoder(params(name, library), batch, length)
        self.rows: list[list[int]] = [[] for _ in range(batch)]

    def feed(self, ids: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Feeds columns; the logits of rows that got something must be those of ``forward``."""
        found = self.decoder(ids, mask)
        assert isinstance(found, np.ndarray)
        real = np.ones(ids.shape, dtype=bool) if mask is None else mask
        for r, row in enumerate(self.rows):
            row += ids[r][real[r]].tolist()
            if real[r].any():
                expected = forward(exactly(self.name), [row])[0, -1]
                assert distance(found[r], expected) <= NEAR, (ids.shape, r)


def prompt(width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three rows: whole, padded on the left, padded on the right; padding is of ids as well."""
    ids = np.random.default_rng(seed).integers(0, 23, (3, width))
    columns, short = np.arange(width), (width + 1) // 3
    mask = np.stack([columns >= 0, columns >= short, columns < max(1, width - 2 * short)])
    if width == 1:
        mask[:] = True
    return ids, mask


def steps(seed: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 23, (3, 3, 1)))


@LIBRARIES
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_prompts_of_any_width(library: str, name: str, width: int) -> None:
    fed = Fed(name, library, width)
    fed.feed(*prompt(width))
    for ids in steps(width):
        fed.feed(ids)


@LIBRARIES
@pytest.mark.parametrize("width", [1, 33, 128, 300])
def test_prompts_without_padding(library: str, width: int) -> None:
    fed = Fed("llama", library, width + 3)
    fed.feed(prompt(width)[0])
    for ids in steps(width):
        fed.feed(ids)


@LIBRARIES
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "widths",
    [(1, 1, 1, 2, 1), (300, 1, 129, 1, 90, 1), (511, 1, 1, 1), (480, 31, 1, 33, 1), (40, 500, 1)],
    ids=repr,
)
def test_caches_grow_as_they_must(library: str, name: str, widths: tuple[int, ...]) -> None:
    """From room for a single column, past 512 slots, where JAX has the end of its first."""
    fed = Fed(name, library, 1)
    for seed, width in enumerate(widths):
        fed.feed(*prompt(width, seed))


@LIBRARIES
def test_a_step_may_be_padding_in_a_row(library: str) -> None:
    fed = Fed("llama", library, 8)
    fed.feed(*prompt(5))
    fed.feed(steps(0)[0], np.array([[True], [False], [True]]))
    fed.feed(steps(0)[1], np.array([[False], [True], [False]]))
    fed.feed(steps(0)[2])


@LIBRARIES
def test_two_decoders_of_the_same_parameters_do_not_meet(library: str) -> None:
    one, two = Fed("llama", library, 4), Fed("llama", library, 4)
    one.feed(*prompt(9, 1))
    two.feed(*prompt(4, 2))
    for first, second in zip(steps(1), steps(2), strict=True):
        one.feed(first)
        two.feed(second)


# Greedy generation, which JAX does in a loop of its own


LIKE_JAX = pytest.mark.parametrize("library", libraries("jax"))


def alike(library: str, ids: Any, max_new_tokens: int, **settings: Any) -> np.ndarray:
    """What ``generate`` gives, which must be what ``stream`` gives, and what NumPy gives."""
    given = params("llama", library)
    found = generate(given, ids, max_new_tokens, **settings)
    assert given.backend.is_array(found)
    single = [host(step) for step in stream(given, ids, max_new_tokens, **settings)]
    here = generate(params("llama", "numpy"), ids, max_new_tokens, **settings)
    assert host(found).dtype == (single[0].dtype if single else host(found).dtype)
    assert np.array_equal(host(found), here)
    assert np.array_equal(host(found), np.stack(single, axis=1) if single else here)
    return here


PROMPTS = np.random.default_rng(3).integers(0, 23, (3, 6))


@LIKE_JAX
@pytest.mark.parametrize("new", [0, 1, 2, 63, 64, 65, 66, 130])
def test_any_number_of_new_tokens(library: str, new: int) -> None:
    found = alike(library, PROMPTS, new)
    assert found.shape == (3, new)
    assert new < 60 or all(len(set(row)) > 2 for row in found.tolist())  # it says something


@LIKE_JAX
@pytest.mark.parametrize("width", [1, 400, 505])
def test_from_prompts_of_any_length_past_the_first_cache(library: str, width: int) -> None:
    ids, mask = prompt(width, 4)
    alike(library, ids, 130, mask=mask)


@LIKE_JAX
def test_rows_that_end_at_different_steps(library: str) -> None:
    free = generate(params("llama", "numpy"), PROMPTS, 130)
    seen = [row.tolist() for row in free]
    lengths = set()
    for eos in [*range(23), [1, 2], [7, 3, 11], list(range(23))]:
        found = alike(library, PROMPTS, 130, eos=eos, pad=-7)
        ends = [eos] if isinstance(eos, int) else eos
        for row, whole in zip(found.tolist(), seen, strict=True):
            last = next((i + 1 for i, x in enumerate(whole) if x in ends), 130)
            assert row == (whole[:last] + [-7] * 130)[: len(row)]
            lengths.add(last)
    assert len(lengths) > 5


@LIKE_JAX
@pytest.mark.parametrize("size", [1, 7, 22, 23, 99])
def test_a_vocabulary_below_the_models(library: str, size: int) -> None:
    assert alike(library, PROMPTS, 70, vocab_size=size).max() < min(size, 23)


@LIKE_JAX
def test_the_loop_is_what_generates(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 tokens a time and one before; not where a person waits for each, nor where they are drawn."""
    decoder = tinyxp.backend(library).engine.decoder
    decode, calls = decoder.decode_greedily, []
    monkeypatch.setattr(decoder, "decode_greedily", lambda *args: calls.append(args[3]) or decode(*args))
    given = params("llama", library)
    for new, expected in ((0, []), (1, []), (2, [1]), (65, [64]), (66, [65, 1]), (130, [129, 65, 1])):
        calls.clear()
        generate(given, PROMPTS, new)
        assert calls == expected
    calls.clear()
    generate(given, PROMPTS, 5, temperature=1.0, seed=0)
    generate(given, PROMPTS, 5, overflow="slide")
    generate(given, PROMPTS, 5, cache=False)
    assert len(list(stream(given, PROMPTS, 5))) == 5
    assert calls == []


def counter(library: str, *, broken: int | None = None, last: float = 0.0) -> Params:
    """A model of 140 ids that says the next number, and after a broken one nothing of sense."""
    config = Config(vocab_size=140, n_layers=1, d_model=140, n_heads=1, n_kv_heads=1, d_ff=1, head_dim=2)
    arrays = {name: np.zeros(shape, dtype=np.float32) for name, shape in parameter_shapes(config).items()}
    for name, x in arrays.items():
        x += name.endswith("norm.weight")
    arrays["embed.weight"] += np.eye(140, dtype=np.float32)
    arrays["head.weight"] += np.roll(np.eye(140, dtype=np.float32), 1, axis=0)
    arrays["head.weight"][139] += last
    if broken is not None:
        arrays["embed.weight"][broken] = np.nan
    return Params(arrays, config).to(tinyxp.backend(library).xp)


@LIKE_JAX
@pytest.mark.parametrize("broken", [1, 2, 3, 63, 64, 65, 66, 100])
def test_logits_that_are_not_finite_at_a_step(library: str, broken: int) -> None:
    """Row 1 is 5 numbers ahead, and says the broken one 5 steps before row 0 would."""
    for there in (library, "numpy"):
        given = counter(there, broken=broken + 5)
        fine = host(generate(given, [[0], [5]], broken))
        assert fine.tolist() == [list(range(1, broken + 1)), list(range(6, broken + 6))]
        for call in (generate, lambda *args: list(stream(*args))):
            with pytest.raises(ValueError, match=f"logits of row 1 are not finite at step {broken}$"):
                call(given, [[0], [5]], 120)


@LIKE_JAX
def test_rows_that_have_ended_may_be_anything_in_the_loop(library: str) -> None:
    """Row 1 ends with 9, and its next tokens, fed as 0, are broken; nor is a prompt padded with 0."""
    given = counter(library, broken=0)
    found = host(generate(given, [[1], [5]], 30, eos=[9, 20], pad=0)).tolist()
    assert found == [[2, 3, 4, 5, 6, 7, 8, 9], [6, 7, 8, 9, 0, 0, 0, 0]]


@LIKE_JAX
def test_what_may_not_be_chosen_may_be_anything(library: str) -> None:
    given = counter(library, last=np.inf)
    with pytest.raises(ValueError, match="row 0 are not finite at step 0"):
        generate(given, [[0]], 30)
    assert host(generate(given, [[0]], 70, vocab_size=139))[0].tolist() == list(range(1, 71))
