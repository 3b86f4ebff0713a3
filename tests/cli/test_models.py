"""The costs that ``tinyxp info`` shows, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from tinyxp.cli.models import estimate_costs
from tinyxp.config import Config
from tinyxp.formats import TensorInfo

CONFIG = Config(n_layers=1)
MATRICES = 128 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32


def test_operations_of_a_token() -> None:
    costs = estimate_costs(CONFIG, [])
    assert costs["flops_per_token"] == 2 * MATRICES
    assert costs["flops_per_token_and_position_seen"] == 4 * 4 * 8
    assert costs["cache_bytes_per_token_float32"] == 2 * 4 * 2 * 8
    assert costs["float32_bytes"] == 4 * costs["parameters"]["total"]
    assert (costs["file_bytes"], costs["file_dtypes"]) == (0, {})


def test_every_bias_is_added_once() -> None:
    biased = replace(CONFIG, attn_bias=True, attn_out_bias=True, mlp_bias=True, head_bias=True)
    biases = 32 + 2 * 16 + 32 + 64 + 64 + 32 + 128
    assert estimate_costs(biased, [])["flops_per_token"] == 2 * MATRICES + biases


def test_bytes_of_a_file() -> None:
    tensors = [TensorInfo("a", (), (2,), dtype, n, ()) for dtype, n in (("F32", 8), ("Q4_1", 20), ("F32", 4))]
    costs = estimate_costs(CONFIG, tensors)
    assert costs["file_bytes"] == 32
    assert costs["file_dtypes"] == {"F32": 2, "Q4_1": 1}
