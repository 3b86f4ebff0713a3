"""What a variant is made of: changes, layers, parameters."""

from __future__ import annotations

import numpy as np

from tests.doctor.models import CONFIGS, GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import fault_of, right_variant


def test_a_fault_is_added_to_every_block_and_point() -> None:
    v = right_variant(LLAMA_SMALL)
    first, second = (fault_of(LLAMA_SMALL, key) for key in ("eps 0.001", "theta 500000"))
    one = v.with_faults(first).in_blocks_only([1], v)
    assert (one.changes_in(0), one.changes_in(1)) == ((), (first.change,))
    both = one.with_faults(second)
    assert (both.changes_in(0), both.changes_in(1)) == ((second.change,), (first.change, second.change))
    single = v.with_faults(first).at_point_only("final_norm", v)
    assert (single.changes_at("final_norm"), single.changes_at("logits")) == ((first.change,), ())


def test_layers_are_those_of_the_last_change_that_has_any() -> None:
    v = right_variant(LLAMA_SMALL)
    assert v.layers == (0, 1)
    swapped = v.with_faults(fault_of(LLAMA_SMALL, "layers 0 and 1 exchanged"))
    assert swapped.layers == (1, 0)
    assert swapped.with_faults(fault_of(LLAMA_SMALL, "layer 0 dropped")).layers == (1,)


def test_extra_tokens_change_the_ids_and_the_columns_that_are_answered() -> None:
    v = right_variant(LLAMA_SMALL).with_faults(
        fault_of(LLAMA_SMALL, "extra token 7 in front, last answer left out")
    )
    assert v.batch.ids[:, 0].tolist() == [7, 7]
    assert v.answered == slice(None, -1)
    assert right_variant(LLAMA_SMALL).answered == slice(None)


def test_post_norm_hands_on_what_the_second_norm_gives() -> None:
    v = right_variant(LLAMA_SMALL)
    assert v.stream_point(0) == "residual"
    assert v.with_faults(fault_of(LLAMA_SMALL, "norm after, not before")).stream_point(0) == "mlp_norm"


def test_a_tied_head_is_the_embedding_by_a_name_of_its_own() -> None:
    v = right_variant(CONFIGS["qwen2"])
    assert np.array_equal(v.read("head.weight"), v.read("embed.weight"))
    shifted = v.with_faults(fault_of(CONFIGS["qwen2"], "embedding rows shifted by +1"))
    embedding, head = (shifted.parameter(f"{name}.weight", shifted.changes) for name in ("embed", "head"))
    assert np.array_equal(embedding, np.roll(head, 1, axis=0))


def test_what_the_model_lacks_is_neutral() -> None:
    v = right_variant(LLAMA_SMALL)
    assert np.array_equal(v.read("final_norm.bias"), np.zeros(32))
    assert right_variant(GPT2_SMALL).read("final_norm.bias").any()


def test_read_off_faults_change_nothing() -> None:
    from tinyxp.doctor.fits.values import read_fault

    v = right_variant(LLAMA_SMALL)
    assert v.with_faults(read_fault("key", "{it} errs", "do not", "embed")).changes == ()
