"""generate and stream: what is returned, when rows end, seeds, padding, overflow and errors.

Each model runs with one number of rows on every backend, since JAX compiles a decoder for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import GPT2_CONFIG, IDS, LLAMA_CONFIG, drawn, filled, host
from tinyxp import Config, Params, forward, generate, stream
from tinyxp.decoding import CHUNK
from tinyxp.generation import ROOM
from tinyxp.shapes import parameter_shapes

SCRIPT_CONFIG = Config(
    vocab_size=12, d_model=24, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=24, d_ff=1, max_seq_len=32
)
NEXT = {0: [7], 1: [7], 7: [2, 8], 2: [5], 5: [5], 8: [9], 9: [2]}


def scripted(library: Any, *, broken: int | None = None) -> Params:
    """A model that says what is written: 0 goes on with 7 2 5 5..., and 1 with 7 8 9 2 5 5...

    The first twelve dimensions hold the present id. Attention spreads evenly and carries along how often 0
    and 1 were seen, which decides between the two that may follow 7. An id that is broken gives NaN.
    """
    arrays = {
        name: np.zeros(shape, dtype=np.float32) for name, shape in parameter_shapes(SCRIPT_CONFIG).items()
    }
    for name in arrays:
        if name.endswith("norm.weight"):
            arrays[name] += 1.0
    arrays["embed.weight"][:, :12] = np.eye(12)
    if broken is not None:
        arrays["embed.weight"][broken] = np.nan
    for marker in (0, 1):
        arrays["blocks.0.attn.v.weight"][marker, marker] = 1.0
        arrays["blocks.0.attn.o.weight"][12 + marker, marker] = 1.0
    for present, following in NEXT.items():
        arrays["head.weight"][following, present] = 1.0
    arrays["head.weight"][2, 12] = arrays["head.weight"][8, 13] = 0.1
    return Params(arrays, SCRIPT_CONFIG).to(library)


@pytest.fixture
def script(backend: tinyxp.Backend) -> Params:
    return scripted(backend.xp)


# What comes out


def test_the_script_runs_on(script: Params) -> None:
    expected = [[7, 2, 5, 5, 5, 5], [7, 8, 9, 2, 5, 5]]
    for cache in (True, False):
        ids = generate(script, [[0], [1]], 6, cache=cache)
        assert script.backend.is_array(ids)
        assert "int" in str(ids.dtype)
        assert host(ids).tolist() == expected


def test_rows_end_one_by_one(script: Params) -> None:
    for cache in (True, False):
        ids = generate(script, [[0], [1]], 6, eos=[2, 3], pad=0, cache=cache)
        assert host(ids).tolist() == [[7, 2, 0, 0], [7, 8, 9, 2]]
    # Row 0 does not depend on row 1.
    assert host(generate(script, [[0], [0]], 6, eos=[2, 3])).tolist() == [[7, 2]] * 2


@pytest.mark.parametrize(
    "make",
    [lambda: 2, lambda: [2], lambda: (3, 2), lambda: {2}, lambda: np.array([2]), lambda: iter([2])],
    ids=["int", "list", "tuple", "set", "array", "iterator"],
)
def test_eos_is_one_or_several(make: Callable[[], Any]) -> None:
    eos = make()
    assert host(generate(scripted(np), [[1], [0]], 6, eos=eos, pad=11)).tolist() == [
        [7, 8, 9, 2],
        [7, 2, 11, 11],
    ]


@pytest.mark.parametrize("eos", [None, [], 4], ids=repr)
def test_an_end_that_never_comes(eos: Any) -> None:
    assert host(generate(scripted(np), [[0]], 4, eos=eos)).tolist() == [[7, 2, 5, 5]]


def test_eos_in_the_prompt_ends_nothing() -> None:
    assert host(generate(scripted(np), [[7, 0]], 3, eos=0)).tolist() == [[7, 2, 5]]


def test_an_eos_at_the_first_step(script: Params) -> None:
    assert host(generate(script, [[0], [1]], 6, eos=7)).tolist() == [[7], [7]]


def test_no_new_tokens(script: Params) -> None:
    ids = generate(script, [[0], [1]], 0)
    assert script.backend.is_array(ids)
    assert tuple(ids.shape) == (2, 0)
    assert "int" in str(ids.dtype)
    assert list(stream(script, [[0]], 0)) == []


def test_stream_yields_the_same_a_step_at_a_time(script: Params) -> None:
    steps = list(stream(script, [[0], [1]], 6, eos=[2, 3]))
    assert all(script.backend.is_array(step) and tuple(step.shape) == (2,) for step in steps)
    assert [host(step).tolist() for step in steps] == [[7, 7], [2, 8], [0, 9], [0, 2]]


def test_stream_checks_at_the_call_and_computes_later() -> None:
    with pytest.raises(ValueError, match="max_new_tokens"):
        stream(scripted(np), [[0]], -1)
    first = next(iter(stream(scripted(np, broken=7), [[0]], 10**4)))  # not one step further than asked
    assert first.tolist() == [7]


def test_greedy_is_forward_again_and_again(backend: tinyxp.Backend) -> None:
    for config in (GPT2_CONFIG, LLAMA_CONFIG):
        row = list(IDS[0])
        for _ in range(6):
            row.append(int(forward(filled(config), [row])[0, -1].argmax()))
        params = filled(config).to(backend.xp, dtype="float32")
        assert host(generate(params, IDS * 3, 6)).tolist() == [row[5:]] * 3


# Batches and padding


def test_padded_rows_say_what_they_say_alone(backend: tinyxp.Backend) -> None:
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
    for config in (GPT2_CONFIG, LLAMA_CONFIG):
        params = filled(config).to(backend.xp, dtype="float32")
        alone = [host(generate(filled(config), [prompt], 6))[0].tolist() for prompt in prompts]
        for side in ("left", "right"):
            ids, mask = np.full((3, 5), 8), np.zeros((3, 5), dtype=bool)
            for r, prompt in enumerate(prompts):
                at = slice(5 - len(prompt), 5) if side == "left" else slice(0, len(prompt))
                ids[r, at], mask[r, at] = prompt, True
            for cache in (True, False):
                assert host(generate(params, ids, 6, mask=mask, cache=cache)).tolist() == alone
            assert host(generate(params, ids[::-1], 6, mask=mask[::-1])).tolist() == alone[::-1]


def test_padding_in_the_middle() -> None:
    params = filled(LLAMA_CONFIG)
    expected = generate(params, IDS, 6).tolist()
    ids, mask = [[8, 3, 1, 8, 8, 4, 1, 5, 8]], [[0, 1, 1, 0, 0, 1, 1, 1, 0]]
    assert generate(params, ids, 6, mask=mask).tolist() == expected
    assert generate(params, ids, 6, mask=mask, cache=False).tolist() == expected


# Sampling


def test_a_seed_means_the_same_on_every_backend_and_in_every_batch(backend: tinyxp.Backend) -> None:
    settings: dict[str, Any] = {"temperature": 1.3, "top_k": 9, "top_p": 0.95, "seed": 11}
    params = filled(LLAMA_CONFIG)
    here = generate(params.to(backend.xp, dtype="float32"), IDS * 3, 8, **settings)
    there = generate(params, IDS * 3, 8, **settings)
    assert np.array_equal(host(here), there)
    assert len({tuple(row) for row in there.tolist()}) == 3  # rows draw different numbers
    assert np.array_equal(generate(params, IDS * 2, 8, **settings), there[:2])
    assert np.array_equal(generate(params, IDS * 3, 5, **settings), there[:, :5])
    assert not np.array_equal(generate(params, IDS * 3, 8, **{**settings, "seed": 12}), there)


def test_a_draw_is_the_inverse_cumulative_distribution() -> None:
    params, row, drawn_ids = filled(LLAMA_CONFIG), list(IDS[0]), []
    u = np.random.default_rng([5, 0]).random(7)
    for step in range(7):
        logits = forward(params, [row])[0, -1] / 0.8
        p = np.exp(logits - logits.max())
        drawn_ids.append(int(np.searchsorted(np.cumsum(p / p.sum()), u[step], side="right")))
        row.append(drawn_ids[-1])
    assert generate(params, IDS, 7, temperature=0.8, seed=5)[0].tolist() == drawn_ids


def test_rows_do_not_matter_to_each_other_when_one_ends() -> None:
    params = filled(LLAMA_CONFIG)
    settings: dict[str, Any] = {"temperature": 1.5, "seed": 3, "pad": -1}
    free = generate(params, IDS * 4, 12, **settings)
    eos = int(free[0, 3])
    ended = generate(params, IDS * 4, 12, eos=eos, **settings)
    for row, whole in zip(ended.tolist(), free.tolist(), strict=True):
        length = whole.index(eos) + 1 if eos in whole else 12
        assert row == (whole[:length] + [-1] * 12)[: len(row)]


def test_without_a_seed_numpy_s_own_generator_is_left_alone() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global one is what must not move
    one, two = (generate(filled(LLAMA_CONFIG), IDS, 40, temperature=5.0) for _ in range(2))
    assert not np.array_equal(one, two)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_a_vocabulary_larger_than_the_tokenizer_s(backend: tinyxp.Backend) -> None:
    """The scripted model wants 7, 8 and 9; where ids end at 7 it must do without."""
    script = scripted(backend.xp)
    ids = [[1], [1]]
    assert host(generate(script, ids, 8, vocab_size=7)).max() < 7
    drawn_ids = host(generate(script, ids, 40, vocab_size=7, temperature=50.0, seed=0))
    assert drawn_ids.max() == 6
    assert host(generate(script, ids, 4, vocab_size=99)).tolist() == [[7, 8, 9, 2]] * 2


# Long prompts, and many new tokens


def test_a_cache_grows_while_rows_of_unequal_length_go_on(backend: tinyxp.Backend) -> None:
    """Prompts longer than a chunk, and more new tokens than a cache has room for at first."""
    config = Config(vocab_size=16, n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8, max_seq_len=64)
    params = drawn(config, 0.4)
    ids = np.random.default_rng(0).integers(0, 16, (2, CHUNK + 40))
    mask = np.ones(ids.shape, dtype=bool)
    mask[1, 30:] = False  # the second row's last real column lies in the first chunk
    new = host(generate(params, ids, ROOM + 40, mask=mask, xp=backend.xp)).tolist()
    for row, made in zip([ids[0].tolist(), ids[1, :30].tolist()], new, strict=True):
        assert len(set(made)) > 2
        logits = forward(params.to(dtype="float64"), [row + made])[0]
        assert np.argmax(logits[len(row) - 1 : -1], axis=-1).tolist() == made


def test_a_generous_limit_costs_nothing_up_front() -> None:
    params = drawn(LLAMA_CONFIG)
    (first,) = generate(params, IDS, 1)[0].tolist()
    assert generate(params, IDS, 10**15, eos=first).tolist() == [[first]]
    assert generate(params, IDS, 10**15, temperature=1.0, top_k=1, seed=1, eos=first).tolist() == [[first]]


# The end of the positions


def test_a_prompt_of_10_and_7_new_tokens(backend: tinyxp.Backend) -> None:
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    prompt = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]] * 3
    for cache in (True, False):
        assert tuple(generate(params, prompt, 7, cache=cache).shape) == (3, 7)


def test_a_prompt_of_10_and_8_is_refused_before_any_compute(backend: tinyxp.Backend) -> None:
    poisoned = {**filled(GPT2_CONFIG), "embed.weight": np.full((11, 8), np.nan)}
    params = Params(poisoned, GPT2_CONFIG).to(backend.xp, dtype="float32")
    prompt = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]
    for call in (generate, stream):
        for cache in (True, False):
            with pytest.raises(ValueError, match="17 > 16") as error:
                call(params, prompt, 8, cache=cache)
            assert "max_seq_len" in str(error.value)


def test_padding_is_not_counted(backend: tinyxp.Backend) -> None:
    params = filled(GPT2_CONFIG).to(backend.xp, dtype="float32")
    ids = np.concatenate([np.full((1, 5), 8), [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]], axis=1)
    mask = np.arange(15)[None] >= 5
    new = host(generate(params, np.repeat(ids, 3, 0), 7, mask=np.repeat(mask, 3, 0)))
    assert np.array_equal(new, np.repeat(generate(filled(GPT2_CONFIG), ids[:, 5:], 7), 3, 0))
    with pytest.raises(ValueError, match="17 > 16"):
        generate(params, ids, 8, mask=mask)


def test_rotary_positions_go_on() -> None:
    short = Params(dict(filled(LLAMA_CONFIG)), replace(LLAMA_CONFIG, max_seq_len=6))
    assert np.array_equal(generate(short, IDS, 12), generate(filled(LLAMA_CONFIG), IDS, 12))


@pytest.mark.parametrize("length", [3, 16, 20])
def test_sliding(backend: tinyxp.Backend, length: int) -> None:
    """The last max_seq_len ids, positions from 0."""
    for config in (GPT2_CONFIG, replace(LLAMA_CONFIG, max_seq_len=16)):
        whole = Params(dict(filled(config if config is GPT2_CONFIG else LLAMA_CONFIG)), config)
        row = np.random.default_rng(1).integers(0, 11, length).tolist()
        expected = list(row)
        for _ in range(18):
            expected.append(int(forward(whole, [expected[-16:]])[0, -1].argmax()))
        params = whole.to(backend.xp, dtype="float32")
        new = host(generate(params, [row] * 3, 18, overflow="slide"))
        assert new.tolist() == [expected[length:]] * 3
    assert np.array_equal(host(generate(params, [row] * 3, 18, overflow="slide", cache=False)), new)


def test_sliding_with_padding() -> None:
    params = filled(GPT2_CONFIG)
    ids = np.random.default_rng(2).integers(0, 11, (2, 14))
    mask = np.arange(14) >= np.array([[0], [6]])
    new = generate(params, ids, 12, mask=mask, overflow="slide")
    assert np.array_equal(new[:1], generate(params, ids[:1], 12, overflow="slide"))
    assert np.array_equal(new[1:], generate(params, ids[1:, 6:], 12, overflow="slide"))


# Errors


def test_logits_that_are_not_finite(backend: tinyxp.Backend) -> None:
    """Row 1 says 7, 8 and then, having read 8, nothing of sense: its third step, number 2."""
    params = scripted(backend.xp, broken=8)
    assert host(generate(params, [[0], [1]], 2)).tolist() == [[7, 2], [7, 8]]
    for cache in (True, False):
        for temperature in (0.0, 1.0):
            with pytest.raises(ValueError, match=r"row 1 are not finite at step 2"):
                generate(params, [[0], [1]], 6, cache=cache, temperature=temperature, top_k=1)


def test_a_row_that_has_ended_may_be_anything(backend: tinyxp.Backend) -> None:
    """Row 0 ends before its padding, the broken id 11, could do harm."""
    ids = generate(scripted(backend.xp, broken=11), [[0], [1]], 6, eos=2, pad=11)
    assert host(ids).tolist() == [[7, 2, 11, 11], [7, 8, 9, 2]]


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"max_new_tokens": -1}, ["max_new_tokens is -1"]),
    ({"max_new_tokens": 1.5}, ["max_new_tokens is 1.5"]),
    ({"max_new_tokens": True}, ["max_new_tokens is True"]),
    ({"max_new_tokens": "3"}, ["max_new_tokens is '3'"]),
    ({"max_new_tokens": None}, ["max_new_tokens is None"]),
    ({"temperature": -0.5}, ["temperature is -0.5"]),
    ({"temperature": float("nan")}, ["temperature is nan"]),
    ({"top_k": 0}, ["top_k is 0"]),
    ({"top_p": 1.5}, ["top_p is 1.5"]),
    ({"seed": -3}, ["seed is -3"]),
    ({"seed": 0.5}, ["seed is 0.5"]),
    ({"eos": 11}, ["eos is 11", "11"]),
    ({"eos": -1}, ["eos is -1"]),
    ({"eos": [2, 99]}, ["eos is 99", "11"]),
    ({"eos": "2"}, ["eos"]),
    ({"eos": 2.0}, ["eos is 2.0"]),
    ({"pad": 1.5}, ["pad is 1.5"]),
    ({"pad": None}, ["pad is None"]),
    ({"overflow": "wrap"}, ["overflow is 'wrap'", "raise", "slide"]),
    ({"overflow": None}, ["overflow is None"]),
    ({"cache": "no"}, ["cache is 'no'"]),
    ({"cache": None}, ["cache is None"]),
    ({"vocab_size": 0}, ["vocab_size is 0"]),
    ({"vocab_size": 1.5}, ["vocab_size is 1.5"]),
    ({"mask": [[1, 1, 1]]}, ["mask", "(1, 3)", "(1, 5)"]),
    ({"mask": [[0] * 5]}, ["mask", "row 0"]),
    ({"mask": [[0.5] * 5]}, ["mask", "float64"]),
    ({"mask": [[2] * 5]}, ["mask"]),
    ({"ids": [[3, 11]]}, ["ids holds 11", "11"]),
    ({"ids": [[3, -1]]}, ["ids holds -1"]),
    ({"ids": [3, 1]}, ["ids has shape (2,)"]),
    ({"ids": [[]]}, ["ids has shape (1, 0)"]),
    ({"ids": []}, ["ids has shape (0,)"]),
    ({"ids": [[1.0]]}, ["ids has dtype float64"]),
    ({"ids": [[1, 2], [3]]}, ["ids"]),
    ({"ids": "abc"}, ["ids"]),
    ({"ids": None}, ["ids"]),
]


@pytest.mark.parametrize("change, words", REFUSED, ids=[repr(change) for change, _ in REFUSED])
def test_refused(change: dict[str, Any], words: list[str]) -> None:
    """One ValueError, the same on every backend, from generate and from stream at the call."""
    messages = set()
    for name in ("numpy", "torch", "jax", "strict"):
        if tinyxp.available_backends()[name] is None:
            continue
        params = drawn(LLAMA_CONFIG).to(tinyxp.backend(name).xp)
        for call in (generate, stream):
            arguments = {"ids": IDS, "max_new_tokens": 3} | change
            with pytest.raises(ValueError) as error:  # noqa: PT011 - the words follow
                call(params, **arguments)
            messages.add(str(error.value))
    assert len(messages) == 1
    assert all(word in str(error.value) for word in words)


def test_what_are_no_params() -> None:
    for wrong in ({}, None, dict(drawn(LLAMA_CONFIG))):
        with pytest.raises(ValueError, match="params is a"):
            generate(wrong, IDS, 3)  # type: ignore[arg-type]


# Compiled decoding


def test_jax_compiles_once_for_a_bucket(caplog: pytest.LogCaptureFixture) -> None:
    """Prompts of 2 to 15 ids and generations of any length up to 16 columns share their two compilations."""
    jax = pytest.importorskip("jax")
    params = filled(replace(LLAMA_CONFIG, norm_eps=2e-5)).to(jax.numpy, dtype="float32")

    def compiled() -> list[str]:
        """What was compiled that takes the parameters, among them the embedding."""
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [text for text in found if text.startswith("Compiling") and "float32[11,8]" in text]

    with jax.log_compiles():
        generate(params, IDS, 3)
        assert len(compiled()) == 2  # the prefill and the step
        generate(params, [[3, 1, 4, 1, 5, 9, 2]], 9)
        generate(params, [[3, 1]], 14)
        assert not compiled()
