"""The record of a family: keys by field, and families that differ from another in a few places."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tinyxp.formats.families.gpt2 import GPT2
from tinyxp.formats.families.llama import LLAMA
from tinyxp.formats.family import Choice, Key, Window, all_heads


def test_the_key_of_a_field() -> None:
    assert LLAMA.key_of("d_model") == "hidden_size"
    assert LLAMA.key_of("attn_out_bias") == "attention_bias"
    assert LLAMA.key_of("mlp") == ""
    assert LLAMA.key_of("position") == ""


def test_a_derived_family_differs_in_what_is_named() -> None:
    other = LLAMA.derive(
        "other", "OtherForCausalLM", {"hidden_size": 7, "hidden_act": "swish"}, window=Window(default=3)
    )
    assert (other.model_type, other.architecture) == ("other", "OtherForCausalLM")
    defaults = {key.name: key.default for key in other.keys}
    assert (defaults["hidden_size"], defaults["hidden_act"], defaults["vocab_size"]) == (7, "swish", 32000)
    assert other.window == Window(default=3)
    assert other.names is LLAMA.names
    assert {key.name: key.default for key in LLAMA.keys}["hidden_size"] == 4096


def test_every_field_has_one_key() -> None:
    fields = [field for key in LLAMA.keys if isinstance(key, Key) for field in key.fields]
    fields += [key.field for key in LLAMA.keys if isinstance(key, Choice)]
    assert len(fields) == len(set(fields))


def test_all_heads() -> None:
    assert all_heads({"n_heads": 5, "d_model": 20}) == 5


@pytest.mark.parametrize(
    "record, field",
    [
        (LLAMA, "prefix"),
        (LLAMA.window, "default"),
        (LLAMA.keys[0], "name"),
        (LLAMA.keys[1], "name"),
        (LLAMA.names, "top"),
        (LLAMA.names.top[0], "name"),
        (GPT2.fixed[0], "value"),
    ],
)
def test_declarations_are_frozen(record: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, field, None)
