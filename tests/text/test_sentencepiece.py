"""SentencePiece's BPE: scores, bytes, prefixes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.base import Tokenizer
from tinyxp.text.sentencepiece import parse_byte_token, sentencepiece_tokenizer


def naive(text: str, pieces: list[bytes], scores: list[float]) -> list[int]:
    """Greedy joining of the best pair over the whole text, for pieces that hold every character."""
    ids = [pieces.index(character.encode()) for character in text]
    while True:
        best = None
        for i in range(len(ids) - 1):
            joint = pieces[ids[i]] + pieces[ids[i + 1]]
            if joint in pieces and (best is None or scores[pieces.index(joint)] > best[0]):
                best = scores[pieces.index(joint)], i, pieces.index(joint)
        if best is None:
            return ids
        ids[best[1] : best[1] + 2] = [best[2]]


def tokenizer_of(pieces: list[bytes], scores: list[float], **options: Any) -> Tokenizer:
    given = {"specials": {}, "always": {}, "byte_ids": {}, "bos_id": None, "eos_ids": ()}
    return sentencepiece_tokenizer(
        pieces, scores, **{**given, "adds_bos": False, "space_prefix": False, **options}
    )


@given(
    made=st.lists(st.text("ab ", min_size=2, max_size=4), unique=True, max_size=12),
    text=st.text("ab ", max_size=20),
    data=st.data(),
)
def test_encode_is_the_naive_algorithm(made: list[str], text: str, data: st.DataObject) -> None:
    pieces = [piece.encode() for piece in ["a", "b", " ", *made]]
    scores = data.draw(st.lists(st.integers(-3, 3).map(float), min_size=len(pieces), max_size=len(pieces)))
    tokenizer = tokenizer_of(pieces, scores)
    assert tokenizer.encode(text) == naive(text, pieces, scores)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_prefix_stands_before_the_text_alone(adds_bos: bool) -> None:
    pieces = [b"<s>", b" ", b"a", b"b"]
    tokenizer = tokenizer_of(
        pieces, [0.0] * 4, specials={"<s>": 0}, bos_id=0, adds_bos=adds_bos, space_prefix=True
    )
    bos = [0] if adds_bos else []
    assert tokenizer.encode("ab") == [*bos, 1, 2, 3]
    assert tokenizer.encode("") == bos
    assert tokenizer.encode("a<s>b", specials=True) == [*bos, 1, 2, 0, 3]
    assert tokenizer.encode("<s>a", specials=True) == ([0, 1, 2] if adds_bos else [0, 2])
    for text in ["ab", "a<s>b", "", " a", "<s>a" * (not adds_bos)]:
        assert tokenizer.decode(tokenizer.encode(text, specials=True)) == text


def test_characters_without_piece_are_bytes() -> None:
    pieces = [b"a", "é".encode(), b"<0xC3>", b"<0xBC>", b"<0x61>"]
    tokenizer = tokenizer_of(pieces, [0.0] * 5, byte_ids={0xC3: 2, 0xBC: 3, 0x61: 4})
    assert tokenizer.encode("aéü") == [0, 1, 2, 3]
    assert tokenizer.decode([4, 2, 3, 2]) == "aü\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match="'x' has no token"):
        tokenizer.encode("x")


def test_special_and_unused_pieces_are_never_made() -> None:
    pieces = [b"a", b"b", b"ab", b"ba"]
    tokenizer = tokenizer_of(pieces, [0.0] * 4, specials={"ab": 2}, unused=frozenset({3}))
    assert tokenizer.encode("aba") == [0, 1, 0]
    assert tokenizer.encode("aba", specials=True) == [2, 0]
    assert tokenizer.decode([3]) == "ba"
    always = tokenizer_of(pieces, [0.0] * 4, always={"ab": 2})
    assert always.encode("aba") == [2, 0]


def test_the_first_of_equal_pieces_is_made() -> None:
    tokenizer = tokenizer_of([b"a", b"a"], [0.0, 1.0])  # "\u2581" and " " of one file, say
    assert tokenizer.encode("a") == [0]
    assert tokenizer.decode([1]) == "a"


def test_a_score_that_is_no_number() -> None:
    with pytest.raises(CheckpointError, match="score of token 1"):
        tokenizer_of([b"a", b"b"], [0.0, float("nan")])


def test_parse_byte_token() -> None:
    assert [parse_byte_token(t) for t in (b"<0x0A>", b"<0xFF>", b"<0x0a>", b"<0x0A> ", b"A")] == [
        10,
        255,
        None,
        None,
        None,
    ]
