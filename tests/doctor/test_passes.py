"""A variant's pass is the model's own, but for its changes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import CONFIGS, IDS
from tests.doctor.variants import PADDED, fault_of, right_variant, run
from tinyxp.doctor.reference_run import run_reference
from tinyxp.doctor.traces import Batch


@pytest.mark.parametrize("batch", [Batch(IDS), PADDED], ids=["whole", "padded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_right_variant_is_the_reference_run(name: str, batch: Batch) -> None:
    v = right_variant(CONFIGS[name], batch)
    reference: dict[str, np.ndarray] = {}

    def tap(point: str, x: np.ndarray) -> np.ndarray:
        reference[point] = x
        return x

    run_reference(v.weights, batch, tap)
    points = run(v)
    assert list(points) == list(reference)
    for point, x in reference.items():
        np.testing.assert_allclose(points[point], x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("key", ["eps 0.001", "variance with n - 1", "norm weight as 1 + w"])
def test_a_fault_at_one_kind_of_point_leaves_the_others(key: str) -> None:
    v = right_variant(CONFIGS["llama"])
    everywhere = v.with_faults(fault_of(CONFIGS["llama"], key))
    right, wrong = run(v), run(everywhere)
    single = run(everywhere.at_point_only("mlp_norm", v))
    assert np.array_equal(single["blocks.0.attn_norm"], right["blocks.0.attn_norm"])
    assert not np.allclose(single["blocks.0.mlp_norm"], right["blocks.0.mlp_norm"])
    final = run(everywhere.at_point_only("final_norm", v))
    assert np.array_equal(final["blocks.1.residual"], right["blocks.1.residual"])
    assert not np.allclose(final["final_norm"], right["final_norm"])
    assert not np.allclose(wrong["blocks.0.attn_norm"], right["blocks.0.attn_norm"])


def test_a_fault_in_one_block_leaves_the_blocks_before_it() -> None:
    v = right_variant(CONFIGS["gpt2"])
    wrong = v.with_faults(fault_of(CONFIGS["gpt2"], "relu for gelu_tanh"))
    right, single = run(v), run(wrong.in_blocks_only([1], v))
    assert np.array_equal(single["blocks.0.residual"], right["blocks.0.residual"])
    assert not np.allclose(single["blocks.1.mlp.hidden"], right["blocks.1.mlp.hidden"])


def test_the_last_norm_and_the_head_have_changes_of_their_own() -> None:
    config = CONFIGS["llama"]
    v = right_variant(config)
    wrong = v.with_faults(fault_of(config, "products in bfloat16"))
    right, single = run(v), run(wrong.at_point_only("logits", v))
    assert np.array_equal(single["final_norm"], right["final_norm"])
    assert not np.array_equal(single["logits"], right["logits"])
