"""Byte-pair encoding against its definition and against tiktoken; GPT-2's byte table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.text import bpe

ENCODINGS = [
    ("gpt2", bpe.GPT2_PATTERN),
    ("cl100k_base", bpe.CL100K_PATTERN),
    ("o200k_base", bpe.O200K_PATTERN),
]
BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({b"ab": 256, b"bc": 257}, [256, ord("c")]),
        ({b"ab": 257, b"bc": 256}, [ord("a"), 256]),
        ({b"bc": 256, b"abc": 257, b"ab": 258}, [257]),
        ({b"abc": 256}, [256]),  # a whole chunk needs no merges
    ],
)
def test_encode_joins_the_lowest_rank_first(tokens: dict[bytes, int], expected: list[int]) -> None:
    assert bpe.encode("abc", BYTES | tokens) == expected


def test_encode_joins_the_leftmost_of_equals() -> None:
    assert bpe.encode("aaaaa", BYTES | {b"aa": 256}) == [256, 256, ord("a")]


def test_encode_does_not_join_across_chunks() -> None:
    ranks = BYTES | {b"a b": 256, b" b": 257}
    assert bpe.encode("a b", ranks) == [ord("a"), 257]
    assert bpe.encode("a b", ranks, pattern=r"(?s).+") == [256]


def test_encode_keeps_what_the_pattern_does_not_find() -> None:
    assert bpe.encode("ab12c", BYTES | {b"b1": 256, b"2c": 257, b"ab": 258}, pattern=r"\d+") == [
        258,
        *b"12c",
    ]


def test_encode_merges_separates_ids_from_ranks() -> None:
    vocab = BYTES | {b"ab": 300, b"bc": 301, b"abc": 302}
    merges = {(b"b", b"c"): 0, (b"a", b"b"): 1}
    assert bpe.encode_merges("abc", vocab, merges) == [ord("a"), 301]
    assert bpe.encode_merges("abc", vocab, merges, ignore_merges=True) == [302]
    assert bpe.encode_merges("abcab", vocab, merges, ignore_merges=True) == [ord("a"), 301, 300]


def test_encode_merges_takes_a_pair_not_its_joint() -> None:
    vocab = BYTES | {b"ab": 300, b"bc": 301, b"abc": 302}
    merges = {(b"a", b"b"): 0, (b"a", b"bc"): 1}
    assert bpe.encode_merges("abc", vocab, merges) == [300, ord("c")]


def test_encode_names_a_byte_without_token() -> None:
    with pytest.raises(ValueError, match=r"b'c' of 'abc'"):
        bpe.encode("abc", {b"a": 0, b"b": 1})


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_encode_rejects_lone_surrogates(text: str) -> None:
    with pytest.raises(ValueError, match=r"lone surrogate, U\+D[8F][0F][0F], at index \d"):
        bpe.encode(text, BYTES)


@pytest.mark.parametrize("text", [b"abc", None, 3])
def test_encode_rejects_what_is_no_text(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a str, not"):
        bpe.encode(text, BYTES)


def test_one_long_chunk_is_no_catastrophe() -> None:
    ranks = BYTES | {b"ab": 256, b"abab": 257, b"abababab": 258}
    assert bpe.encode("ab" * 50_000, ranks) == [258] * 12_500  # the naive algorithm takes an hour


def test_cache_is_used_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "_CACHED_CHUNKS", 2)
    monkeypatch.setattr(bpe, "_CACHED_LENGTH", 3)
    seen: list[str] = []

    def encode_chunk(chunk: str) -> list[int]:
        seen.append(chunk)
        return [len(chunk)]

    encode = bpe.ChunkEncoder(str.split, encode_chunk)
    assert encode("a a bb a") == [1, 1, 2, 1]
    assert seen == ["a", "bb"]
    assert encode("long long") == [4, 4]
    assert seen == ["a", "bb", "long", "long"]
    assert encode("ccc a") == [3, 1]  # the third chunk empties a cache of two
    assert seen == ["a", "bb", "long", "long", "ccc", "a"]


def test_decode() -> None:
    ranks = BYTES | {"é".encode(): 256, b" a": 257}
    assert bpe.decode([256, 257], ranks) == "é a"
    assert bpe.decode(np.array([257, 0xC3]), ranks) == " a\N{REPLACEMENT CHARACTER}"
    assert bpe.decode([], ranks) == ""


@pytest.mark.parametrize("index", [256, -1])
def test_decode_names_an_unknown_id(index: int) -> None:
    with pytest.raises(ValueError, match=rf"id {index} .* 256 ids"):
        bpe.decode([0, index], BYTES)


def test_byte_table_is_one_to_one() -> None:
    table = bpe.byte_characters()
    assert len(set(table)) == 256
    assert all(character.isprintable() and not character.isspace() for character in table)
    assert (table[ord("a")], table[ord(" ")], table[ord("\n")], table[0xAD]) == ("a", "Ġ", "Ċ", "Ń")


@given(st.binary())
def test_spelling_bytes_round_trips(data: bytes) -> None:
    assert bpe.unspell_bytes(bpe.spell_bytes(data)) == data


def test_unspell_knows_only_the_table() -> None:
    assert bpe.unspell_bytes("Ġthe") == b" the"
    assert bpe.unspell_bytes("你") is None
    assert bpe.unspell_bytes(" ") is None


@given(data=st.data())
@pytest.mark.parametrize(("name", "pattern"), ENCODINGS)
def test_encode_is_tiktoken(
    name: str, pattern: str, test_data: Path, mixed_texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))
        theirs = tiktoken.get_encoding(name)
    text = data.draw(mixed_texts)
    ids = bpe.encode(text, theirs._mergeable_ranks, pattern=pattern)
    assert ids == theirs.encode(text, disallowed_special=())
    assert b"".join(theirs.decode_tokens_bytes(ids)) == text.encode()


# Alphabets, each drawn from as a whole, so that every text changes its script many times.
SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéß\u0131\u017fǅÞñ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЖЯ",
    "αβγδεζηθικλμνξοπρστυφχψως\u0301ΆΣ",
    "कखगघचजटडतदनपबमयरलवशसह\u093e\u093f\u0940\u0947\u094d",
    "가각나다라마바사아자차카타파하\u1112\u1161\u11ab",
    "你好世界中文字符的一是不了人我在有他这\uff0c。",
    "مرحبابالعالم\u064b\u0651،؟",
    [*"🙂👍🇬🇧🏽\ufe0f\u200d", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈"],
    "0123456789٣४½Ⅷ²",
    [*" \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000", "  ", "\r\n", "\n\n"],
    ["'s", "'T", "'ll", "'VE", "'re", "'d", "'\u017f", "\u2019s", " don't"],
    "\x00\x01\x07\x1b\x7f\x9f\u200b\ufeff",
    '!?.,;:-_/()[]{}<|>#@$%&*+=~`^"\\',
]


@pytest.mark.parametrize(("name", "pattern"), ENCODINGS)
def test_encode_is_tiktoken_on_a_thousand_texts(
    name: str, pattern: str, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))
    theirs = tiktoken.get_encoding(name)
    encode = bpe.rank_encoder(theirs._mergeable_ranks, pattern)
    rng = random.Random(0)
    for _ in range(1000):
        runs = (rng.choices(rng.choice(SCRIPTS), k=rng.randint(1, 6)) for _ in range(rng.randint(1, 30)))
        text = "".join(piece for run in runs for piece in run)
        assert encode(text) == theirs.encode_ordinary(text), text


@pytest.mark.parametrize(
    ("name", "pattern", "count"), [(*e, n) for e, n in zip(ENCODINGS, (11, 10, 10), strict=True)]
)
def test_how_many_tokens_a_sentence_takes(
    name: str, pattern: str, count: int, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))
    ranks = tiktoken.get_encoding(name)._mergeable_ranks
    sentence = "The library opens at nine o'clock every morning."
    assert len(bpe.encode(sentence, ranks, pattern=pattern)) == count
