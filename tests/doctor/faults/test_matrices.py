"""What faults of matrices and biases load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import fault_of, right_variant
from tinyxp import Config
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults import list_faults

BIASED = replace(LLAMA_SMALL, attn_bias=True, attn_out_bias=True, mlp_bias=True, head_bias=True)


def loaded(key: str, name: str, config: Config = BIASED) -> tuple[Any, Any]:
    """A parameter of the right model, and with a fault."""
    v = right_variant(config)
    return v.read(name), v.parameter(name, v.with_faults(fault_of(config, key)).changes)


EDITS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("attn.o transposed", "blocks.1.attn.o.weight"): np.transpose,
    ("mlp.up reshaped", "blocks.1.mlp.up.weight"): lambda x: x.T.reshape(x.shape),
    ("attn.v doubled", "blocks.1.attn.v.weight"): lambda x: 2.0 * x,
    ("attn.v negated", "blocks.1.attn.v.weight"): lambda x: -x,
    ("all biases dropped", "blocks.1.mlp.down.bias"): np.zeros_like,
    ("head bias dropped", "head.bias"): np.zeros_like,
    ("q bias dropped", "blocks.1.attn.k.bias"): lambda x: x,
    ("weights in bfloat16", "embed.weight"): lambda x: round_to(x.astype(float), "bfloat16"),
    ("blocks' matrices in bfloat16", "embed.weight"): lambda x: x,
}


@pytest.mark.parametrize(("key", "name"), EDITS)
def test_edits(key: str, name: str) -> None:
    right, wrong = loaded(key, name)
    assert np.array_equal(wrong, EDITS[key, name](right))


def test_exchanged_and_copied_parameters() -> None:
    v = right_variant(BIASED)
    for end in ("weight", "bias"):
        up = v.read(f"blocks.1.mlp.up.{end}")
        assert np.array_equal(loaded("mlp.gate and mlp.up exchanged", f"blocks.1.mlp.gate.{end}")[1], up)
        k = v.read(f"blocks.1.attn.k.{end}")
        assert np.array_equal(loaded("attn.k in place of attn.v", f"blocks.1.attn.v.{end}")[1], k)
        assert np.array_equal(loaded("attn.k in place of attn.v", f"blocks.1.attn.k.{end}")[1], k)


def test_eight_bits_are_255_steps_a_row() -> None:
    _, wrong = loaded("weights in int8", "blocks.0.mlp.up.weight")
    steps = wrong / (np.max(np.abs(wrong), axis=-1, keepdims=True) / 127.0)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)
    assert len(np.unique(np.rint(steps))) > 50


def test_only_what_a_model_has_can_be_wrong() -> None:
    keys = {fault.key for fault in list_faults(LLAMA_SMALL)}
    assert not {key for key in keys if "bias" in key}
    assert "attn.o transposed" in keys
    assert "attn.k transposed" not in keys  # it is no square
    assert "attn.q and attn.k exchanged" not in keys  # they have other shapes
    ungated = {fault.key for fault in list_faults(replace(LLAMA_SMALL, mlp="gelu"))}
    assert not {key for key in ungated if "mlp.gate" in key}
