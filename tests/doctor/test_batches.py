"""The input of both sides: checked against both, drawn if none is given, and continued greedily."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn, libraries
from tinyxp import Config
from tinyxp.doctor import Batch, Recorded, as_side, compare
from tinyxp.doctor.batches import choose_batch, continue_greedily, draw_ids

from .models import CONFIGS, GPT2_SMALL, IDS, gpt2, llama, port, traced


def test_drawn_ids_are_always_the_same_and_known_to_both() -> None:
    found = compare(gpt2(), gpt2())
    assert found.batch.ids.shape == (1, 32)
    assert np.array_equal(found.batch.ids, compare(gpt2(), gpt2()).batch.ids)
    short = replace(GPT2_SMALL, max_seq_len=9)
    assert compare(drawn(short), drawn(short)).batch.ids.shape == (1, 9)
    small = Config(vocab_size=7)
    assert compare(llama(), drawn(small)).batch.ids.max() < 7


def test_ids_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ids holds 61; it must be 0 or more and below .* 61"):
        compare(llama(), llama(), [[1, 61]])
    with pytest.raises(ValueError, match=r"ids holds -1"):
        compare(llama(), llama(), [[1, -1]])
    with pytest.raises(ValueError, match=r"ids has shape \(3,\)"):
        compare(llama(), llama(), [1, 2, 3])
    with pytest.raises(ValueError, match=r"dtype"):
        compare(llama(), llama(), [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"mask has shape"):
        compare(llama(), llama(), IDS, mask=np.ones((2, 3), bool))
    with pytest.raises(ValueError, match=r"pass ids"):
        compare(port(llama()), port(llama()))
    with pytest.raises(ValueError, match=r"ids is not a rectangular array"):
        compare(llama(), llama(), [[1, 2], [3]])
    recorded = Recorded(Batch(IDS), traced(llama(), IDS))
    with pytest.raises(ValueError, match=r"B was recorded for ids .* the other side gets"):
        compare(llama(), recorded, IDS[::-1])
    with pytest.raises(ValueError, match=r"recorded for another mask"):
        compare(llama(), recorded, IDS, mask=np.arange(12) >= np.array([[0], [1]]))


def test_a_mask_without_ids_is_refused() -> None:
    """Unless a recorded trace brings its own."""
    with pytest.raises(ValueError, match=r"mask is given, and ids are not"):
        compare(llama(), llama(), mask=np.ones((1, 32), bool))
    mask = np.arange(12) >= np.array([[0], [4]])
    recorded = Recorded(Batch(IDS, mask), traced(llama(), IDS, mask))
    assert compare(llama(), recorded, mask=mask.astype(int).tolist()).agrees
    with pytest.raises(ValueError, match=r"B was recorded for another mask"):
        compare(llama(), recorded, mask=~mask)


def test_a_side_cannot_change_what_the_other_gets() -> None:
    def greedy(ids: np.ndarray) -> Any:
        points = traced(llama(), ids)
        ids[:] = 0
        return points

    found = compare(greedy, llama(), IDS)
    assert found.agrees
    assert np.array_equal(found.batch.ids, IDS)


def test_ids_are_drawn_from_the_smaller_vocabulary_and_fill_the_shorter_table() -> None:
    small, short = Config(vocab_size=7), replace(GPT2_SMALL, max_seq_len=9)
    sides = [as_side(drawn(config)) for config in (small, short)]
    for pair in (sides, sides[::-1]):
        ids = draw_ids(pair)
        assert ids.shape == (1, 9)
        assert set(ids.ravel().tolist()) <= set(range(7))


def test_the_ids_of_a_recorded_trace_are_those_of_both_sides() -> None:
    recorded = as_side(Recorded(Batch(IDS), traced(llama(), IDS)))
    for pair in ((recorded, as_side(llama())), (as_side(llama()), recorded)):
        assert np.array_equal(choose_batch(*pair, None, None).ids, IDS)


def test_a_mask_without_a_real_token_leaves_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="mask has no real token"):
        choose_batch(as_side(llama()), as_side(llama()), IDS, np.zeros(IDS.shape, bool))


@pytest.mark.parametrize("library", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("family", CONFIGS)
def test_generating_with_a_model_or_a_function_appends_its_greedy_tokens(family: str, library: str) -> None:
    params = drawn(CONFIGS[family])
    batch = Batch(IDS)
    wanted = np.concatenate([IDS, np.asarray(tinyxp.generate(params, IDS, 5))], axis=1)
    ours = continue_greedily(as_side(params.to(xp=tinyxp.backend(library).xp)), batch, 5)
    function = continue_greedily(as_side(port(params)), batch, 5)
    assert np.array_equal(ours.ids, wanted)
    assert np.array_equal(function.ids, wanted)
    found = compare(params, port(params), IDS, generate=5)
    assert (found.generated, found.predictions) == (5, 34)
    assert np.array_equal(found.batch.ids, wanted)
    assert found.agrees


def test_generating_goes_on_behind_a_mask() -> None:
    mask = np.arange(12) >= np.array([[0], [3]])
    wanted = np.asarray(tinyxp.generate(llama(), IDS, 4, mask=mask))
    for side in (llama(), port(llama())):
        found = continue_greedily(as_side(side), Batch(IDS, mask), 4)
        assert np.array_equal(found.ids[:, 12:], wanted)
        assert found.mask is not None
        assert np.array_equal(found.mask, np.concatenate([mask, np.ones((2, 4), bool)], axis=1))


def test_what_cannot_generate_says_so() -> None:
    mask = np.arange(12) < np.array([[12], [9]])
    with pytest.raises(ValueError, match=r"the last column, which the mask says is padding"):
        compare(llama(), llama(), IDS, mask=mask, generate=1)
    recorded = tinyxp.doctor.Recorded(Batch(IDS), traced(llama(), IDS))
    with pytest.raises(ValueError, match=r"A is a recorded trace, which cannot generate"):
        compare(recorded, llama(), generate=1)
    for wrong in (-1, 1.5, "2", True):
        with pytest.raises(ValueError, match="generate is"):
            compare(llama(), llama(), IDS, generate=wrong)  # type: ignore[arg-type]

    def residuals(ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"blocks.0.residual": traced(llama(), ids)["blocks.0.residual"]}

    with pytest.raises(ValueError, match=r"gave no logits.*cannot generate"):
        compare(residuals, llama(), IDS, generate=1)
    with pytest.raises(ValueError, match=r"max_seq_len"):
        compare(drawn(CONFIGS["gpt2"]), llama(), IDS, generate=40)
    with pytest.raises(ValueError, match=r"generate is 2; B is a recorded trace of fixed ids"):
        compare(llama(), recorded, generate=2)
