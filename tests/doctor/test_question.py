"""One point to explain: its candidates, and what explains it."""

from __future__ import annotations

from typing import Any

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import evidence_of, fault_of
from tinyxp.doctor.budget import Budget
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import list_faults
from tinyxp.doctor.question import Question, rms_at, without_narrow

LIST = tuple(list_faults(LLAMA_SMALL))


def ask(evidence: Evidence, point: str, **changes: Any) -> Question:
    own = evidence.all_errors(evidence.right)
    fields: dict[str, Any] = {"named": frozenset(), "reads_checkpoint": False, **changes}
    return Question(evidence, Budget(600.0), evidence.right, point, own, LIST, **fields)


def keys_at(point: str, *known: str) -> set[str]:
    evidence = evidence_of(LLAMA_SMALL)
    points = {name: x for name, x in evidence.points.items() if not known or name in known}
    side = Evidence(evidence.weights, evidence.batch, points, "float32")
    return {fault.key for fault in ask(side, point).candidates()}


def test_only_faults_of_the_operation_are_candidates() -> None:
    rotated = keys_at("blocks.0.attn.q_rotated")
    assert {"neighbour pairing", "theta 500000"} <= rotated
    assert not rotated & {"attn.o transposed", "relu for silu", "scores not scaled"}
    assert "attn.q doubled" in keys_at("blocks.0.attn.q")
    assert "attn.k doubled" not in keys_at("blocks.0.attn.q")
    assert "final norm missing" not in keys_at("logits")


def test_without_points_between_the_operations_before_are_candidates_too() -> None:
    stream = ("embed", "blocks.0.residual", "blocks.1.residual", "logits")
    residual = keys_at("blocks.0.residual", *stream)
    assert {"attn.o transposed", "relu for silu", "scores not scaled"} <= residual
    assert "final norm missing" not in residual
    assert "final norm missing" in keys_at("logits", *stream)


def test_tokens_in_front_are_candidates_for_a_run_from_the_ids_only() -> None:
    key = "extra token 1 in front, last answer left out"
    assert key in keys_at("logits", "logits")
    assert key not in keys_at("logits", "blocks.0.residual", "logits")


def test_a_fault_explains_a_point_if_it_spoils_no_other() -> None:
    question = ask(evidence_of(LLAMA_SMALL, "gelu for silu"), "blocks.0.mlp.hidden")
    right, wrong = (fault_of(LLAMA_SMALL, key) for key in ("gelu for silu", "relu for silu"))
    assert question.is_solved_by((right,), question.try_faults(right))
    assert not question.is_solved_by((wrong,), question.try_faults(wrong))
    spoilt = dict(question.try_faults(right))
    spoilt["blocks.0.attn.q"] = question.own["blocks.0.mlp.hidden"]
    assert not question.is_solved_by((right,), spoilt)
    assert not question.is_solved_by((right,), {})


def test_few_digits_explain_an_error_of_their_size_and_shape() -> None:
    narrow, other = (fault_of(LLAMA_SMALL, f"softmax in {dtype}") for dtype in ("bfloat16", "float16"))
    question = ask(evidence_of(LLAMA_SMALL, narrow.key), "blocks.0.attn.weights")
    assert question.is_solved_by((narrow,), question.own)
    assert not question.is_solved_by((other,), question.own)


def test_the_error_at_a_point_for_sorting() -> None:
    question = ask(evidence_of(LLAMA_SMALL, "gelu for silu"), "blocks.0.mlp.hidden")
    assert rms_at("blocks.0.mlp.hidden", question.own) > 0.01
    assert rms_at("blocks.9.mlp.hidden", question.own) == float("inf")
    assert {fault.key for fault in LIST} - {fault.key for fault in without_narrow(LIST)} == {
        fault.key for fault in LIST if fault.narrow
    }
