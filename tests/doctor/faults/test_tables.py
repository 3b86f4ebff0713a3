"""What faults around the blocks load, run and put in front."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.doctor.models import CONFIGS, LLAMA_SMALL
from tests.doctor.variants import PADDED, fault_of, right_variant
from tinyxp.doctor.faults import list_faults
from tinyxp.doctor.faults.tables import likely_front_tokens, put_in_front


def test_shifted_rows() -> None:
    v = right_variant(LLAMA_SMALL)
    shifted = v.with_faults(fault_of(LLAMA_SMALL, "vocabulary rows shifted by +1"))
    for name in ("embed.weight", "head.weight"):
        wrong = shifted.parameter(name, shifted.changes)
        assert np.array_equal(wrong[5], v.read(name)[4])  # token n has row n - 1
    only = v.with_faults(fault_of(LLAMA_SMALL, "head rows shifted by -1"))
    assert np.array_equal(only.parameter("head.weight", only.changes)[5], v.read("head.weight")[6])
    assert only.parameter("embed.weight", only.changes) is v.read("embed.weight") or np.array_equal(
        only.parameter("embed.weight", only.changes), v.read("embed.weight")
    )


def test_a_head_that_is_tied() -> None:
    v = right_variant(LLAMA_SMALL)
    tied = v.with_faults(fault_of(LLAMA_SMALL, "head tied"))
    assert np.array_equal(tied.parameter("head.weight", tied.changes), v.read("embed.weight"))
    assert "head tied" not in {fault.key for fault in list_faults(CONFIGS["qwen2"])}


def test_orders_of_layers() -> None:
    config = replace(LLAMA_SMALL, n_layers=3)
    orders = {f.key: f.change.layers for f in list_faults(config) if f.choice == "layers" and f.change}
    assert orders["layer 1 dropped"] == (0, 2)
    assert orders["layer 1 doubled"] == (0, 1, 1, 2)
    assert orders["layers 1 and 2 exchanged"] == (0, 2, 1)
    assert orders["layer 1 in place of layer 2"] == (0, 1, 1)
    assert orders["layer 2 in place of layer 1"] == (0, 2, 2)
    assert len(orders) == 3 + 3 + 2 + 4
    single = {f.key for f in list_faults(replace(config, n_layers=1)) if f.choice == "layers"}
    assert single == {"layer 0 doubled"}


def test_tokens_in_front() -> None:
    longer = put_in_front(PADDED, 7)
    assert longer.ids.shape == (2, 13)
    assert longer.ids[:, 0].tolist() == [7, 7]
    assert longer.real[:, :4].tolist() == [[True, False, False, False], [True, True, True, True]]
    assert likely_front_tokens(replace(LLAMA_SMALL, vocab_size=64)) == list(range(64))
    assert likely_front_tokens(replace(LLAMA_SMALL, vocab_size=65)) == [0, 1, 2, 3, 63, 64]
