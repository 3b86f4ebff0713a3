"""Training byte-pair encoding against its definition, step by step."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.text import bpe

BYTES = {bytes([byte]): byte for byte in range(256)}
SING = "sing sing sings song sang"
TEXTS = st.text("ab", min_size=1, max_size=60) | st.text("abc '1é\n", min_size=1, max_size=60)
WHOLE = r"(?s).+"


def naive_train(text: str, vocab_size: int, pattern: str) -> list[tuple[bytes, bytes, int]]:
    """The definition: encode it all, count all pairs, take the best, start again."""
    ranks, merges = dict(BYTES), []
    while len(ranks) < vocab_size:
        tokens = {rank: token for token, rank in ranks.items()}
        counts: Counter[tuple[int, int]] = Counter()
        for chunk in bpe.split(text, pattern):
            counts.update(pairwise(bpe.encode(chunk, ranks, pattern=WHOLE)))
        if not counts:
            break
        (left, right), count = min(counts.items(), key=lambda item: (-item[1], item[0]))
        merges.append((tokens[left], tokens[right], count))
        ranks[tokens[left] + tokens[right]] = len(ranks)
    return merges


def test_four_merges() -> None:
    ranks, merges = bpe.train(SING, 260)
    assert merges == [(b"n", b"g", 5), (b" ", b"s", 4), (b"i", b"ng", 3), (b" s", b"ing", 2)]
    assert ranks == BYTES | {b"ng": 256, b" s": 257, b"ing": 258, b" sing": 259}
    assert bpe.encode(SING, ranks) == [115, 258, 259, 259, 115, 257, 111, 256, 257, 97, 256]
    assert len(SING) == 25


def test_the_runners_up_of_the_third_merge() -> None:
    ranks, _ = bpe.train(SING, 258)
    counts = bpe.pair_counts(SING, ranks)
    assert counts == {
        (b"i", b"ng"): 3,
        (b" s", b"i"): 2,
        (b"s", b"i"): 1,
        (b"ng", b"s"): 1,
        (b" s", b"o"): 1,
        (b"o", b"ng"): 1,
        (b" s", b"a"): 1,
        (b"a", b"ng"): 1,
    }


@given(text=TEXTS, size=st.integers(256, 280), pattern=st.sampled_from([bpe.GPT2_PATTERN, WHOLE]))
def test_training_is_the_naive_algorithm(text: str, size: int, pattern: str) -> None:
    ranks, merges = bpe.train(text, size, pattern=pattern)
    assert merges == naive_train(text, size, pattern)
    assert list(ranks.values()) == list(range(256 + len(merges)))
    assert list(ranks)[256:] == [left + right for left, right, _ in merges]


@given(text=TEXTS, size=st.integers(256, 300), pattern=st.sampled_from([bpe.GPT2_PATTERN, WHOLE]))
def test_the_text_of_a_training_stands_as_it_is_encoded(text: str, size: int, pattern: str) -> None:
    """Merges done one after the other, each over the whole text, end where `encode` ends."""
    ranks, merges = bpe.train(text, size, pattern=pattern)
    ids = []
    for chunk in bpe.split(text, pattern):
        parts = [bytes([byte]) for byte in chunk.encode()]
        for left, right, _ in merges:
            i = 0
            while i < len(parts) - 1:
                if parts[i : i + 2] == [left, right]:
                    parts[i : i + 2] = [left + right]
                i += 1
        ids += [ranks[part] for part in parts]
    assert bpe.encode(text, ranks, pattern=pattern) == ids


@given(text=TEXTS, other=TEXTS, size=st.integers(256, 300))
def test_what_is_trained_is_the_same_to_tiktoken(text: str, other: str, size: int) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = bpe.train(text, size).ranks
    theirs = tiktoken.Encoding("trained", pat_str=bpe.GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
    assert bpe.encode(other, ranks) == theirs.encode_ordinary(other)


def test_training_stops_where_no_pair_is_left() -> None:
    ranks, merges = bpe.train("ab ab", 1000)
    assert merges == [(b"a", b"b", 2), (b" ", b"ab", 1)]
    assert len(ranks) == 258
    assert bpe.train("a", 1000).merges == []


def test_a_pair_overlaps_itself() -> None:
    assert bpe.pair_counts("aaaa", BYTES) == {(b"a", b"a"): 3}
    assert bpe.train("aaaa", 300).merges == [(b"a", b"a", 3), (b"aa", b"aa", 1)]


def test_equals_go_by_id() -> None:
    # " a", "ab" and "bc" stand once each: the space has the lowest id.
    assert bpe.train("bc ab", 257).merges == [(b" ", b"a", 1)]
    assert bpe.train("bcab", 257).merges == [(b"a", b"b", 1)]


def test_pairs_do_not_cross_chunks() -> None:
    assert (b"a", b" ") not in bpe.pair_counts("a a a", BYTES)
    assert bpe.pair_counts("a a a", BYTES, pattern=WHOLE)[b"a", b" "] == 2


def test_pair_counts_take_a_chunk_that_is_a_token_as_one() -> None:
    assert bpe.pair_counts("abc abcd", BYTES | {b"abc": 256}) == {
        (b" ", b"a"): 1,
        (b"a", b"b"): 1,
        (b"b", b"c"): 1,
        (b"c", b"d"): 1,
    }


def test_pair_counts_name_a_byte_without_token() -> None:
    with pytest.raises(ValueError, match=r"b'c' of 'abc' has no token"):
        bpe.pair_counts("abc", {b"a": 0, b"b": 1})


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("a", 255, "vocab_size is 255; it must be an integer of 256 or more"),
        ("a", 300.0, "vocab_size is 300.0; it must be an integer"),
        ("a", True, "vocab_size is True; it must be an integer"),
        ("", 300, "text is empty"),
        (b"abc", 300, "text must be a str, not bytes"),
        (None, 300, "text must be a str, not NoneType"),
        ("a\ud800", 300, r"lone surrogate, U\+D800, at index 1"),
    ],
)
def test_what_cannot_be_trained_on(text: Any, size: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bpe.train(text, size)


def test_a_book(book: str) -> None:
    ranks, merges = bpe.train(book, 4096)
    assert (len(ranks), len(merges)) == (4096, 3840)
    assert merges[0] == (b" ", b"t", book.count(" t"))
    ids = bpe.encode(book, ranks)
    assert bpe.decode(ids, ranks) == book
