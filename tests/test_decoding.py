"""The plain decoder: chunks, a cache that grows, and rows that end at different columns."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tests.reference import LLAMA_CONFIG, distance, drawn
from tinyxp.decoding import Decoder, InPlaceDecoder
from tinyxp.engine import engine_of
from tinyxp.ops import Kernels

PARAMS = drawn(LLAMA_CONFIG)
IN_PLACE = Kernels(write_cache=engine_of(PARAMS.backend).kernels["write_cache"])
DECODERS = [(Decoder, Kernels()), (InPlaceDecoder, IN_PLACE)]


@pytest.mark.parametrize(("kind", "kernels"), DECODERS, ids=["new caches", "in place"])
def test_chunks_and_a_cache_that_grows(kind: type[Decoder], kernels: Kernels) -> None:
    ids = np.random.default_rng(0).integers(0, 11, (2, 17))
    decoder = kind(PARAMS, 2, 3, kernels=kernels)
    decoder.chunk = 5
    found = decoder(ids)
    assert distance(found, tinyxp.forward(PARAMS, ids)[:, -1]) <= 1e-5
    assert decoder.used == 17
    assert decoder.cache.real.shape == (2, 24)  # 3, doubled until it takes 17
    step = decoder(ids[:, :1])
    assert distance(step, tinyxp.forward(PARAMS, np.concatenate([ids, ids[:, :1]], 1))[:, -1]) <= 1e-5


@pytest.mark.parametrize(("kind", "kernels"), DECODERS, ids=["new caches", "in place"])
def test_a_row_that_ends_in_an_earlier_chunk_keeps_its_logits(kind: type[Decoder], kernels: Kernels) -> None:
    ids = np.random.default_rng(1).integers(0, 11, (2, 6))
    mask = np.asarray([[True, True, False, False, False, False], [True] * 6])
    decoder = kind(PARAMS, 2, 6, kernels=kernels)
    decoder.chunk = 3
    found = decoder(ids, mask)
    assert distance(found[:1], tinyxp.forward(PARAMS, ids[:1, :2])[:, -1]) <= 1e-5
    assert distance(found[1:], tinyxp.forward(PARAMS, ids[1:])[:, -1]) <= 1e-5


def test_the_plain_decoder_does_not_loop() -> None:
    decoder = Decoder(PARAMS, 1, 4, kernels=Kernels())
    assert not decoder.loops
    with pytest.raises(NotImplementedError, match="Decoder does not loop"):
        decoder.decode_greedily(np.zeros(1), np.zeros(1), 1, np.zeros(11), np.zeros(11))
