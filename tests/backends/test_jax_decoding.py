"""JAX's decoder: lengths of caches, stacked parameters, tokens that a loop chooses."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import LLAMA_CONFIG, drawn
from tinyxp.engine import new_decoder

jax = pytest.importorskip("jax")

from tinyxp.backends import jax_decoding as decoding  # noqa: E402  # it needs jax


@pytest.mark.parametrize("length, slots", [(1, 512), (512, 512), (513, 2048), (2048, 2048), (2049, 8192)])
def test_caches_have_few_lengths(length: int, slots: int) -> None:
    assert decoding.cache_length(length) == slots


def test_parameters_are_stacked_once_for_as_long_as_they_live() -> None:
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    stacked = decoding.stack(params)
    assert decoding.stack(params) is stacked
    assert len(stacked) == len(params)
    assert stacked.blocks["attn.q.weight"].shape == (2, 8, 8)
    assert np.array_equal(stacked["blocks.1.attn.q.weight"], params["blocks.1.attn.q.weight"])


def test_a_loop_chooses_what_single_steps_choose_and_stops_at_an_end() -> None:
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    prompt, n = np.asarray([[3, 1, 4], [1, 5, 9]]), LLAMA_CONFIG.vocab_size
    expected = np.asarray(tinyxp.generate(drawn(LLAMA_CONFIG), prompt, 6))
    decoder = new_decoder(params, 2, 16)
    first = decoder(prompt).argmax(1)
    assert decoder.loops
    none, every = np.zeros(n, bool), np.ones(n, bool)
    ids, finite = decoder.decode_greedily(first, np.zeros(2, bool), 5, none, every)
    assert np.array_equal(np.column_stack([first, ids]), expected)
    assert finite.all()
    again = new_decoder(params, 2, 16)
    again(prompt)
    ids, _ = again.decode_greedily(first, np.zeros(2, bool), 5, every, every)
    assert ids.shape == (2, 1)  # any token ends a row
