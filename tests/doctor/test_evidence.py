"""What is known of a side, and the errors of variants against it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of, fault_of, run
from tinyxp.doctor.evidence import INCOMPARABLE, Evidence, Segment, count_faults, explained_points
from tinyxp.doctor.points import kind

WRONG = "gelu for silu"


def test_segments_end_where_the_stream_is_known() -> None:
    assert evidence_of(LLAMA_SMALL).segments == (*(Segment(i, i) for i in range(-1, 2)), Segment(2, 2))
    assert evidence_of(LLAMA_SMALL, only="logits").segments == (Segment(-1, 2),)
    middle = evidence_of(LLAMA_SMALL, only="blocks.0.residual")
    assert middle.segments == (Segment(-1, 0), Segment(1, 2))
    assert middle.segment_of("blocks.0.attn.q") == Segment(-1, 0)
    assert middle.segment_of("logits") == Segment(1, 2)


def test_a_right_side_has_no_fault_on_its_own_inputs_nor_from_the_ids() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    for errors in (evidence.all_errors(evidence.right), evidence.run_errors(evidence.right)):
        assert errors.keys() == evidence.points.keys()
        assert count_faults(errors) == 0


def test_only_the_wrong_operation_is_a_fault_on_the_sides_own_inputs() -> None:
    evidence = evidence_of(LLAMA_SMALL, WRONG)
    errors = evidence.all_errors(evidence.right)
    assert {kind(name) for name in errors if errors[name].is_fault} == {"mlp.hidden"}
    assert evidence.run_errors(evidence.right)["logits"].is_fault
    wrong = evidence.right.with_faults(fault_of(LLAMA_SMALL, WRONG))
    assert count_faults(evidence.all_errors(wrong)) == count_faults(evidence.run_errors(wrong)) == 0
    assert explained_points(errors, evidence.all_errors(wrong)) == tuple(
        f"blocks.{i}.mlp.hidden" for i in range(2)
    )


def test_the_value_of_a_variant_is_on_the_sides_own_inputs() -> None:
    evidence = evidence_of(LLAMA_SMALL, WRONG)
    value = evidence.value(evidence.right, "blocks.1.mlp.hidden")
    gate, up = (evidence.points[f"blocks.1.mlp.{name}"].astype(np.float64) for name in ("gate", "up"))
    np.testing.assert_allclose(value, gate / (1.0 + np.exp(-gate)) * up, rtol=1e-12)
    assert evidence.value(evidence.right, "blocks.7.mlp.up").size == 0


def test_points_that_the_variant_lacks_cannot_be_compared() -> None:
    evidence = evidence_of(LLAMA_SMALL, "layer 1 doubled")
    errors = evidence.all_errors(evidence.right)
    assert evidence.blocks == 3
    assert errors["blocks.2.attn.q"] is INCOMPARABLE
    assert errors["blocks.2.attn.q"].is_fault


def test_another_shape_cannot_be_compared() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    assert evidence.error("logits", np.zeros((2, 12, 60))) is INCOMPARABLE


def test_the_errors_of_one_block_need_its_input() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    errors = evidence.block_errors(evidence.right, 1)
    assert {name.split(".")[1] for name in errors} == {"1"}
    unknown = Evidence(
        evidence.weights,
        evidence.batch,
        {n: x for n, x in evidence.points.items() if n != "blocks.0.residual"},
        "float32",
    )
    assert unknown.block_errors(unknown.right, 1) == {}


def test_after_a_post_norm_block_the_stream_is_what_its_norm_gave() -> None:
    config = LLAMA_SMALL
    evidence = evidence_of(config, "norm after, not before")
    wrong = evidence.right.with_faults(fault_of(config, "norm after, not before"))
    assert count_faults(evidence.all_errors(wrong)) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_grows_with_the_run(dtype: str) -> None:
    evidence = evidence_of(LLAMA_SMALL)
    evidence = Evidence(evidence.weights, evidence.batch, run(evidence.right), dtype)
    assert evidence.run_noise["logits"].rms > evidence.own_noise["embed"].rms
