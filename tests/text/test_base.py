"""Tokenizers: what encode puts before a text, exact decoding, streams, special tokens."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text import base
from tinyxp.text.base import Tokenizer

BYTES = {byte: bytes([byte]) for byte in range(256)}


def bytes_tokenizer(**options: Any) -> Tokenizer:
    encode = base.add_specials(lambda text: list(text.encode()), {"<|e|>": 256}, {"\t\t": 257})
    return Tokenizer(encode, {**BYTES, 256: b"<|e|>", 257: b"\t\t"}, **options)


def test_special_tokens_are_plain_text_unless_asked_for() -> None:
    tokenizer = bytes_tokenizer()
    assert tokenizer.encode("a<|e|>b") == [97, 60, 124, 101, 124, 62, 98]
    assert tokenizer.encode("a<|e|>b", specials=True) == [97, 256, 98]
    assert tokenizer.encode("\t\t\t") == [257, 9]
    assert tokenizer.decode([97, 256, 98, 257]) == "a<|e|>b\t\t"
    assert tokenizer.vocab_size == 258


def test_the_prefix_goes_before_a_text_that_begins_plain() -> None:
    def encoder(added_bos: int | None) -> base.Encode:
        specials = {"<|e|>": 256}
        return base.add_specials(
            lambda text: list(text.encode()), specials, {}, prefix="_", added_bos=added_bos
        )

    assert encoder(None)("a<|e|>b", True) == [*b"_a", 256, *b"b"]
    assert encoder(None)("<|e|>a", True) == [256, *b"a"]
    assert encoder(256)("<|e|>a<|e|>b", True) == [256, *b"_a", 256, *b"b"]
    assert encoder(256)("", True) == []


def test_the_longest_special_wins() -> None:
    cut = base.special_splitter({"<|a": 0, "<|a|>": 1, "": 2})
    assert list(cut("x<|a|><|ab")) == ["x", 1, 0, "b"]
    assert list(base.special_splitter({})("abc")) == ["abc"]


@pytest.mark.parametrize("specials", [False, True])
def test_one_bos(specials: bool) -> None:
    tokenizer = bytes_tokenizer(bos_id=256, adds_bos=True)
    assert tokenizer.encode("a", specials=specials) == [256, 97]
    assert tokenizer.encode("", specials=specials) == [256]
    assert tokenizer.encode("<|e|>a", specials=True) == [256, 97]
    assert tokenizer.decode([256, 97, 256]) == "a<|e|>"
    assert bytes_tokenizer(bos_id=256).encode("a") == [97]
    assert bytes_tokenizer(bos_id=256).decode([256, 97]) == "<|e|>a"


def test_the_space_prefix_goes_with_the_bos() -> None:
    after_bos = bytes_tokenizer(bos_id=256, adds_bos=True, space_prefix=True)
    assert after_bos.decode([256, *b"  a"]) == " a"
    assert after_bos.decode(list(b" a")) == " a"  # it goes on from an earlier text
    always = bytes_tokenizer(space_prefix=True)
    assert always.decode(list(b"  a b")) == " a b"


@pytest.mark.parametrize("ids", [[258], [-1], [97, 10**20], np.array([300])])
def test_decode_names_an_id_outside(ids: Any) -> None:
    with pytest.raises(ValueError, match=rf"id {ids[-1]} .* 258 ids"):
        bytes_tokenizer().decode(ids)


@pytest.mark.parametrize("ids", [5, [1.5], ["a"], [[1, 2]], np.array([[1, 2]]), np.array([1.0]), None])
def test_decode_rejects_what_are_no_ids(ids: Any) -> None:
    with pytest.raises(ValueError, match="integer"):
        bytes_tokenizer().decode(ids)


def test_decode_takes_numpy_ids() -> None:
    assert bytes_tokenizer().decode(np.array([104, 105], dtype=np.uint16)) == "hi"
    assert bytes_tokenizer(bos_id=256, adds_bos=True).decode([np.int64(256), np.int32(104)]) == "h"


@pytest.mark.parametrize("text", [b"a", 1, None, ["a"]])
def test_encode_rejects_what_is_no_text(text: Any) -> None:
    with pytest.raises(ValueError, match=f"not {type(text).__name__}"):
        bytes_tokenizer().encode(text)


def test_encode_rejects_lone_surrogates() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate, U\+DC80, at index 1"):
        bytes_tokenizer().encode("a\udc80")


@given(data=st.binary(), kind=st.sampled_from([{}, {"bos_id": 32, "adds_bos": True}, {"space_prefix": True}]))
def test_stream_is_decode(data: bytes, kind: dict[str, Any]) -> None:
    tokenizer = bytes_tokenizer(**kind)
    stream = tokenizer.stream()
    pushed = [stream.push(byte) for byte in data] + [stream.flush()]
    assert "".join(pushed) == tokenizer.decode(data)
    if not kind:
        assert "".join(pushed) == data.decode(errors="replace")


@given(st.text())
def test_stream_never_splits_a_character(text: str) -> None:
    stream = bytes_tokenizer().stream()
    for character in text:
        *early, last = character.encode()
        assert [stream.push(byte) for byte in early] == [""] * len(early)
        assert stream.push(last) == character
    assert stream.flush() == ""


@pytest.mark.parametrize("second", [0xA0, 0xBF])
def test_stream_does_not_wait_for_what_begins_no_character(second: int) -> None:
    """U+D800 to U+DFFF are no characters, so that ED A0 to ED BF can go on in no way."""
    stream = bytes_tokenizer().stream()
    assert [stream.push(0xED), stream.push(second)] == ["", 2 * "\N{REPLACEMENT CHARACTER}"]
    assert [stream.push(0xED), stream.push(0x9F), stream.push(0xBF)] == ["", "", "\ud7ff"]


def test_stream_flushes_half_a_character() -> None:
    stream = bytes_tokenizer().stream()
    assert [stream.push(byte) for byte in "🙂".encode()[:3]] == ["", "", ""]
    assert stream.flush() == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match="id 258"):
        stream.push(258)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bos_id": 258}, "BOS id 258"),
        ({"eos_ids": (1, 400)}, "EOS id 400"),
        ({"adds_bos": True}, "names none"),
    ],
)
def test_the_special_ids_are_in_the_vocabulary(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        bytes_tokenizer(**options)


def test_eos_ids_are_a_tuple_without_repetition() -> None:
    assert bytes_tokenizer(eos_ids=[256, 3, 256]).eos_ids == (256, 3)


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({}, "no vocabulary"),
        (["a"], "no vocabulary"),
        ({"a": -1}, "'a' has the id -1"),
        ({"a": True}, "'a' has the id True"),
        ({"a": 1.0}, "'a' has the id 1.0"),
        ({"a": 0, "b": 0}, "id 0 belongs to both 'a' and 'b'"),
        (json.loads(r'{"\ud800": 0}'), "lone surrogate"),
    ],
)
def test_check_vocabulary_rejects(vocab: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        base.check_vocabulary(vocab)
