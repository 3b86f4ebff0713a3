"""Fields: values with their checks, and unread keys that request another computation."""

from __future__ import annotations

from typing import Any

import pytest

from tinyxp import UnsupportedModelError
from tinyxp.formats.fields import Fields


def test_null_is_as_missing() -> None:
    fields = Fields({"a": None, "b": 3})
    assert "a" not in fields
    assert "b" in fields
    assert (fields.get("a", 7), fields.get("b", 7), fields.get("c")) == (7, 3, None)
    assert fields.integer("a", 4) == 4
    assert fields.is_null("a")
    assert not fields.is_null("b")
    assert not fields.is_null("c")


def test_values_are_checked() -> None:
    fields = Fields({"n": 1, "x": 0.5, "flag": False, "zero": 0, "text": "1"}, "own.")
    assert (fields.integer("n"), fields.number("x"), fields.flag("flag", True)) == (1, 0.5, False)
    for read in (fields.integer, fields.number):
        for key in ("zero", "text"):
            with pytest.raises(ValueError, match=rf"own\.{key} is "):
                read(key)
        with pytest.raises(ValueError, match=r"^own\.absent is missing$"):
            read("absent")
    with pytest.raises(ValueError, match=r"own\.n is 1; it must be true or false"):
        fields.flag("n", True)


SUSPECT: list[tuple[str, Any, Any]] = [
    ("attn_logit_softcapping", 50.0, None),
    ("logit_scale", 0.5, 1.0),
    ("residual_multiplier", 2, 1),
    ("num_experts", 1, 0),
    ("sliding_window", 1, 0),
    ("alibi", True, False),
    ("rope_interleaved", True, ""),
    ("quantization", {"bits": 4}, {}),
    ("experts_list", [1], []),
]


@pytest.mark.parametrize("key, on, off", SUSPECT)
def test_an_unread_key_must_be_off(key: str, on: Any, off: Any) -> None:
    Fields({key: off}).reject_unread()
    with pytest.raises(UnsupportedModelError, match=f"^own.{key} is .*: this decoder does not compute that$"):
        Fields({key: on}, "own.").reject_unread()
    read = Fields({key: on})
    read.get(key)
    read.reject_unread()


@pytest.mark.parametrize("key", ["use_cache", "experts_implementation", "gradient_clip", "n_ctx", "europe"])
def test_other_keys_are_harmless(key: str) -> None:
    Fields({key: "yes"}).reject_unread()


def test_a_key_that_is_not_printable_is_escaped() -> None:
    with pytest.raises(UnsupportedModelError, match=r"^'scale\\x1b' is 3"):
        Fields({"scale\x1b": 3}).reject_unread()
