"""Where a fault is found to be."""

from __future__ import annotations

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.test_question import ask
from tests.doctor.variants import evidence_of, fault_of, right_variant, run
from tinyxp.doctor.evidence import Evidence, count_faults
from tinyxp.doctor.location import locate
from tinyxp.doctor.variant import Variant


def evidence_from(v: Variant) -> Evidence:
    points = {name: x.astype("float32") for name, x in run(v).items()}
    return Evidence(v.weights, v.batch, points, "float32")


def test_a_fault_in_all_blocks() -> None:
    fault = fault_of(LLAMA_SMALL, "gelu for silu")
    evidence = evidence_of(LLAMA_SMALL, fault.key)
    finding, wrong = locate(ask(evidence, "blocks.0.mlp.hidden"), (fault,))
    assert finding.blocks is None
    assert finding.points == ("blocks.0.mlp.hidden", "blocks.1.mlp.hidden")
    assert count_faults(evidence.all_errors(wrong)) == 0


def test_a_fault_in_one_block() -> None:
    fault = fault_of(LLAMA_SMALL, "attn.o doubled")
    v = right_variant(LLAMA_SMALL)
    evidence = evidence_from(v.with_faults(fault).in_blocks_only([1], v))
    finding, wrong = locate(ask(evidence, "blocks.1.attn.out"), (fault,))
    assert (finding.blocks, finding.points) == ((1,), ("blocks.1.attn.out",))
    assert count_faults(evidence.all_errors(wrong)) == 0


def test_a_fault_outside_of_the_blocks_only() -> None:
    fault = fault_of(LLAMA_SMALL, "eps 0.001")
    v = right_variant(LLAMA_SMALL)
    evidence = evidence_from(v.with_faults(fault).at_point_only("final_norm", v))
    finding, wrong = locate(ask(evidence, "final_norm"), (fault,))
    assert (finding.blocks, finding.points) == (None, ("final_norm",))
    assert wrong.at_point.keys() == {"final_norm"}


def test_layers_and_heads_are_not_looked_for_block_by_block() -> None:
    fault = fault_of(LLAMA_SMALL, "8 heads for 4")
    evidence = evidence_of(LLAMA_SMALL, fault.key)
    finding, wrong = locate(ask(evidence, "blocks.0.attn.q_rotated"), (fault,))
    assert finding.blocks is None
    assert wrong.in_block == {}


def test_few_digits_explain_all_points_of_their_kinds() -> None:
    fault = fault_of(LLAMA_SMALL, "norm in bfloat16")
    finding, _ = locate(ask(evidence_of(LLAMA_SMALL, fault.key), "blocks.0.attn_norm"), (fault,))
    assert finding.points == (
        *(f"blocks.{i}.{norm}" for i in range(2) for norm in ("attn_norm", "mlp_norm")),
        "final_norm",
    )
