"""Operations and bytes, against numbers worked out by hand and those that ``tinyxp info`` gives."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxp
from tinyxp.bench.arithmetic import bytes_read, cache_bytes, matrices, prefill_flops, weight_bytes
from tinyxp.cli.models import estimate_costs
from tinyxp.config import PRESETS, Config

TINY = Config()
MATRICES = 2 * (4 * 8 * 32 + 2 * 2 * 8 * 32 + 32 * 4 * 8 + 3 * 64 * 32)  # two blocks: q, k and v, o, the MLP


def test_operations_of_the_smallest_model() -> None:
    assert MATRICES == 2 * (32 * 32 + 2 * 16 * 32 + 32 * 32 + 6144)
    seen = 1 + 2 + 3 + 4 + 5
    assert prefill_flops(TINY, 5) == 5 * 2 * MATRICES + 2 * 128 * 32 + seen * 4 * 2 * 32


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_one_token_costs_what_info_says(name: str) -> None:
    costs = estimate_costs(Config.preset(name), [])
    expected = costs["flops_per_token"] + costs["flops_per_token_and_position_seen"]
    assert prefill_flops(Config.preset(name), 1) == expected


def test_a_token_reads_all_but_the_tables_that_it_looks_up_in() -> None:
    params = tinyxp.init(TINY)
    assert weight_bytes(params) == 4 * 26_784
    assert bytes_read(params) == 4 * (26_784 - 128 * 32 + 32)
    assert bytes_read(tinyxp.init(TINY, dtype="float16")) == 2 * (26_784 - 127 * 32)


def test_a_tied_table_is_the_head_and_is_read() -> None:
    config = Config(tie_embeddings=True, position="learned")
    params = tinyxp.init(config)
    assert bytes_read(params) == weight_bytes(params) - 4 * (64 - 1) * 32
    assert "embed.weight" in matrices(config)
    assert "pos_embed.weight" not in matrices(config)


def test_matrices_are_those_of_the_blocks_and_the_head() -> None:
    params = tinyxp.init(TINY)
    assert sum(params[name].size for name in matrices(TINY)) == MATRICES + 128 * 32


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_holds_what_is_counted(dtype: str) -> None:
    params = tinyxp.init(TINY, dtype=dtype)
    cache = tinyxp.new_cache(params, 3, 10)
    held = sum(np.asarray(x).nbytes for x in (*cache.keys, *cache.values))
    assert cache_bytes(params, 3, 10) == held
