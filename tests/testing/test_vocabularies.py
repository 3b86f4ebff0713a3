"""Small vocabularies, held to merges worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.testing import Draw
from tinyxp.testing.vocabularies import (
    Vocabulary,
    draw_vocabulary,
    load_from_files,
    spelled,
    without_unstable,
)

BYTES = {bytes([i]): i for i in range(256)}


def test_the_lowest_rank_is_merged_first_and_the_leftmost_of_equals() -> None:
    ids = BYTES | {b"aa": 256, b"ab": 257, b"aab": 258}
    first_aa = Vocabulary(ids, [(b"a", b"a"), (b"a", b"b")], ranked=False)
    assert first_aa.encode(["aaab"]) == [256, 257]
    first_ab = Vocabulary(ids, [(b"a", b"b"), (b"a", b"a")], ranked=False)
    assert first_ab.encode(["aaab"]) == [256, 257]
    assert first_aa.encode(["aab"]) == [256, 98]
    assert first_ab.encode(["aab"]) == [97, 257]


def test_ranked_pieces_that_are_tokens_become_them() -> None:
    ids = BYTES | {b"aab": 256}
    assert Vocabulary(ids, [], ranked=True).encode(["aab", "aa"]) == [256, 97, 97]
    assert Vocabulary(ids, [], ranked=False).encode(["aab"]) == [97, 97, 98]


def test_bytes_are_spelled_as_in_gpt2() -> None:
    assert spelled(b"a b\n") == "a\u0120b\u010a"


@pytest.mark.parametrize("kind", ["vocab.json", "any"])
@given(data=st.data())
def test_files_load_as_the_vocabulary(kind: str, data: st.DataObject) -> None:
    vocabulary = draw_vocabulary(
        Draw(lambda name, strategy: data.draw(strategy)), "low lower lowest", ranked=kind == "any"
    )
    with load_from_files(vocabulary, kind) as tokenizer:
        assert tokenizer.decode(vocabulary.encode(["low", " lower"])) == "low lower"


def test_characters_of_new_unicode_versions_are_removed() -> None:
    assert without_unstable("a\u0378b") == "ab"  # unassigned
    assert without_unstable("日\U0001f642") == "日\U0001f642"
