"""What faults of rows load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import fault_of, right_variant
from tinyxp import Config
from tinyxp.doctor.faults.rows import deinterleave, interleave, swap_halves

X = np.arange(8)


def loaded(key: str, letter: str, config: Config = LLAMA_SMALL) -> Any:
    v = right_variant(config)
    return v.parameter(f"blocks.0.attn.{letter}.weight", v.with_faults(fault_of(config, key)).changes)


def test_the_orders_of_rows() -> None:
    assert interleave(X, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert interleave(X, 1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert swap_halves(X, 2).tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
    for heads in (1, 2):
        assert deinterleave(interleave(X, heads), heads).tolist() == X.tolist()


@pytest.mark.parametrize(
    ("key", "letter", "heads"),
    [
        ("q rows interleaved", "q", 4),
        ("k rows interleaved", "k", 2),
        ("k permuted with 4 heads", "k", 4),
    ],
)
def test_rows_are_permuted_by_heads(key: str, letter: str, heads: int) -> None:
    right = right_variant(LLAMA_SMALL).read(f"blocks.0.attn.{letter}.weight")
    assert np.array_equal(loaded(key, letter), interleave(right, heads))
    assert np.array_equal(loaded(key, "v"), right_variant(LLAMA_SMALL).read("blocks.0.attn.v.weight"))


def test_a_fused_matrix_is_split_in_another_order() -> None:
    v = right_variant(GPT2_SMALL)
    q, k, value = (v.read(f"blocks.0.attn.{x}.weight") for x in "qkv")
    assert np.array_equal(loaded("qkv cut as vqk", "q", GPT2_SMALL), k)
    assert np.array_equal(loaded("qkv cut as vqk", "k", GPT2_SMALL), value)
    assert np.array_equal(loaded("qkv cut as vqk", "v", GPT2_SMALL), q)
    fused = np.concatenate([q, k, value])
    by_head = loaded("qkv cut head by head", "k", GPT2_SMALL)
    assert np.array_equal(by_head[:8], fused[8:16])  # the second of head 0's q, k, v
    assert np.array_equal(by_head[8:16], fused[32:40])
