"""The attempts to explain one point."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.test_location import evidence_from
from tests.doctor.test_question import LIST, ask
from tests.doctor.variants import evidence_of, fault_of, right_variant
from tinyxp.doctor.attempts import answer, blame_weights, find_at_one_point, find_moved_layers, rank_solved
from tinyxp.doctor.evidence import Evidence


def keys(*names: str, only: str = "", point: str = "") -> tuple[list[str], str]:
    """The keys of the answer for the first point that these faults make wrong, and where it is."""
    evidence = evidence_of(LLAMA_SMALL, *names, only=only)
    own = evidence.all_errors(evidence.right)
    first = point or next(name for name in own if own[name].is_fault)
    finding, _ = answer(ask(evidence, first))
    return [fault.key for fault in finding.faults], first


@pytest.mark.parametrize(
    ("faults", "only", "first"),
    [
        (["gelu for silu"], "", "blocks.0.mlp.hidden"),
        (["gelu for silu"], "logits", "logits"),
        (["attn.o transposed"], "residual", "blocks.0.attn_residual"),
        (["layers 0 and 1 exchanged"], "", "blocks.0.attn_norm"),
        (["gelu for silu", "scores not scaled"], "logits", "logits"),
        (["gate and up swapped", "relu for silu"], "", "blocks.0.mlp.hidden"),
    ],
)
def test_answers(faults: list[str], only: str, first: str) -> None:
    named, point = keys(*faults, only=only)
    assert (sorted(named), point) == (sorted(faults), first)


def test_one_fault_in_one_block_is_found_from_logits() -> None:
    v = right_variant(LLAMA_SMALL)
    wrong = v.with_faults(fault_of(LLAMA_SMALL, "attn.o transposed")).in_blocks_only([1], v)
    evidence = evidence_from(wrong)
    evidence = Evidence(v.weights, v.batch, {"logits": evidence.points["logits"]}, "float32")
    finding, found = answer(ask(evidence, "logits"))
    assert ([fault.key for fault in finding.faults], finding.blocks) == (["attn.o transposed"], (1,))
    assert found.in_block.keys() == {1}


def test_a_fault_at_one_kind_of_point_only() -> None:
    v = right_variant(LLAMA_SMALL)
    evidence = evidence_from(
        v.with_faults(fault_of(LLAMA_SMALL, "neighbour pairing")).at_point_only("attn.k_rotated", v)
    )
    attempt = find_at_one_point(ask(evidence, "blocks.0.attn.k_rotated"), LIST)
    assert attempt is not None
    assert (attempt[0].faults[0].key, attempt[0].only) == ("neighbour pairing", "attn.k_rotated")


def test_layers_are_looked_for_only_if_most_products_are_wrong() -> None:
    moved = evidence_of(LLAMA_SMALL, "layers 0 and 1 exchanged")
    attempt = find_moved_layers(ask(moved, "blocks.0.attn_norm"))
    assert attempt is not None
    assert attempt[1].layers == (1, 0)
    single = evidence_of(LLAMA_SMALL, "attn.o transposed")
    assert find_moved_layers(ask(single, "blocks.0.attn.out")) is None


def test_a_point_that_nothing_explains_has_a_closest_fault() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    odd = evidence.points["blocks.0.mlp.hidden"] * 1.2 + np.float32(0.05)
    points = {**evidence.points, "blocks.0.mlp.hidden": odd}
    evidence = Evidence(evidence.weights, evidence.batch, points, "float32")
    finding, v = answer(ask(evidence, "blocks.0.mlp.hidden"))
    assert finding.faults == ()
    assert finding.before is not finding.after or finding.closest == ()
    assert v is evidence.right


def test_a_product_that_nothing_explains_has_other_weights() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    points = {**evidence.points, "blocks.0.attn.q": np.sin(9 * evidence.points["blocks.0.attn.q"])}
    evidence = Evidence(evidence.weights, evidence.batch, points, "float32")
    attempt = blame_weights(ask(evidence, "blocks.0.attn.q"))
    assert attempt is not None
    assert attempt[0].faults[0].key == "other weights: blocks.0.attn.q"


def test_what_was_found_elsewhere_and_what_a_file_can_have_is_likelier() -> None:
    evidence = evidence_of(LLAMA_SMALL, "gate and up swapped", only="logits")
    code, file = (
        (fault_of(LLAMA_SMALL, key),) for key in ("gate and up swapped", "mlp.gate and mlp.up exchanged")
    )
    errors = evidence.all_errors(evidence.right)
    tried = {code: errors, file: errors}
    in_files = ask(evidence, "logits", reads_checkpoint=True)
    assert rank_solved(in_files, [code, file], tried)[0] == file
    in_code = ask(evidence, "logits")
    assert rank_solved(in_code, [file, code], tried)[0] == code
    named = ask(evidence, "logits", named=frozenset([file[0].key]))
    assert rank_solved(named, [file, code], tried)[0] == file
