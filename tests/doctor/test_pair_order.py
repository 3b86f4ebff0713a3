"""Which pairs of faults are tried, and what the first token rules out."""

from __future__ import annotations

from tests.doctor.models import LLAMA_SMALL
from tests.doctor.variants import PADDED, evidence_of, fault_of
from tinyxp.doctor.budget import Budget
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import Fault, list_faults
from tinyxp.doctor.pair_order import BEAM, SHORT, FirstToken, pairs_of_one_step, pairs_of_segment

LIST = list_faults(LLAMA_SMALL)


def first_token(*keys: str) -> FirstToken:
    evidence = evidence_of(LLAMA_SMALL, *keys, only="logits")
    first = FirstToken.of(evidence, evidence.right, LIST, Budget(600.0))
    assert first is not None
    return first


def fault(key: str) -> Fault:
    return fault_of(LLAMA_SMALL, key)


def test_the_first_token_rules_out_faults_that_change_it() -> None:
    first = first_token("gelu for silu")
    assert first.allows(fault("gelu for silu"))
    assert first.explains(fault("gelu for silu"))
    assert not first.allows(fault("relu for silu"))
    assert first.allows(fault("no causal mask"))  # which it cannot show
    assert first.closest(LIST, 1) == [fault_ for fault_ in LIST if fault_.key == "gelu for silu"]


def test_positions_and_scales_are_silent_at_the_first_token() -> None:
    first = first_token("gelu for silu")
    assert first.is_silent(fault("theta 500000"))
    assert first.is_silent(fault("scores not scaled"))
    assert not first.is_silent(fault("relu for silu"))


def test_only_logits_of_rows_without_padding_in_front_have_a_first_token() -> None:
    evidence = evidence_of(LLAMA_SMALL)
    assert FirstToken.of(evidence, evidence.right, LIST, Budget(1.0)) is None
    logits = {"logits": evidence.points["logits"]}
    padded = Evidence(evidence.weights, PADDED, logits, "float32")
    assert FirstToken.of(padded, padded.right, LIST, Budget(1.0)) is None


def test_the_pair_of_a_loud_and_a_silent_fault_comes_first() -> None:
    first = first_token("gelu for silu", "scores not scaled")
    loud, silent = fault("gelu for silu"), fault("scores not scaled")
    one, other = next(pair for pair in first.pairs(LIST, LIST) if pair[1].key == silent.key)
    assert (one.key, other.key) == (loud.key, silent.key)


def test_no_pair_makes_one_choice_twice_and_none_comes_twice() -> None:
    few = [fault(key) for key in ("theta 500000", "theta 1000", "eps 0.001")]
    keys = [{one.key, other.key} for one, other in pairs_of_one_step(few)]
    assert keys == [{"theta 500000", "eps 0.001"}, {"theta 1000", "eps 0.001"}]


def test_parameters_can_be_wrong_in_two_ways() -> None:
    few = [fault("attn.o transposed"), fault("attn.o doubled")]
    assert len(list(pairs_of_one_step(few))) == 1


def test_long_lists_are_tried_with_the_closest_only() -> None:
    many = [fault_ for fault_ in LIST if not fault_.choice][: SHORT + 5]
    assert len(many) > SHORT
    ones = {one.key for one, _ in pairs_of_one_step(many)}
    assert ones == {fault_.key for fault_ in many[:BEAM]}
    assert {one.key for one, _ in pairs_of_segment(many[:3], many)} == {fault_.key for fault_ in many[:3]}
