"""Compact vocabularies: renumbered ids, files, and what they cannot encode."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyxp.errors import CheckpointError
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer
from tinyxp.text.compact import collect_ids, compact_tokenizer, save_compact
from tinyxp.text.saving import save_tokenizer
from tinyxp.text.tokenizer import load_tokenizer

SING = "sing sing sings song sang"
SING_IDS = [115, 258, 259, 259, 115, 257, 111, 256, 257, 97, 256]
USED = [97, 111, 115, 256, 257, 258, 259]


def letters(text: str, specials: bool) -> list[int]:
    return [ord(letter) - ord("a") for letter in text]


def make(**options: Any) -> Tokenizer:
    """a, b, c, ... are 0, 1, 2, ..."""
    return Tokenizer(letters, {index: bytes([97 + index]) for index in range(26)}, **options)


def test_compact_is_sorted_and_distinct() -> None:
    assert collect_ids(SING_IDS) == USED
    assert collect_ids(np.array([7, 3, 7], np.int64)) == [3, 7]
    assert all(type(index) is int for index in collect_ids(np.array([7, 3])))
    with pytest.raises(ValueError, match="ids is empty"):
        collect_ids([])


def test_ids_are_numbered_in_the_order_of_the_old() -> None:
    ranks = bpe.train(SING, 260).ranks
    whole = Tokenizer(
        lambda text, specials: bpe.encode(text, ranks), {rank: token for token, rank in ranks.items()}
    )
    small = compact_tokenizer(whole, collect_ids(whole.encode(SING)))
    assert small.encode(SING) == [USED.index(index) for index in SING_IDS]
    assert small.decode(small.encode(SING)) == SING
    assert small.vocab_size == 7
    assert [small.token_bytes(index) for index in range(7)] == [
        b"a",
        b"o",
        b"s",
        b"ng",
        b" s",
        b"ing",
        b" sing",
    ]
    stream = small.stream()
    assert [stream.push(index) for index in (6, 2)] == [" sing", "s"]
    with pytest.raises(ValueError, match="id 7 is not in the vocabulary of 7 ids"):
        small.decode([7])


def test_a_piece_outside_is_named_with_its_old_id() -> None:
    small = compact_tokenizer(make(), [0, 2])
    assert small.encode("cac") == [1, 0, 1]
    with pytest.raises(ValueError, match=r"the text needs b'z', id 25, which is not one of the 2 ids"):
        small.encode("caz")


@pytest.mark.parametrize(
    ("kept", "bos_id", "eos_ids"),
    [([0, 3, 5], 1, (2,)), ([0, 5, 9], None, (1, 2)), ([0, 3], 1, ()), ([1], None, ())],
)
def test_bos_and_eos_are_renumbered_or_dropped(
    kept: list[int], bos_id: int | None, eos_ids: tuple[int, ...]
) -> None:
    small = compact_tokenizer(make(bos_id=3, eos_ids=[5, 9]), kept)
    assert (small.bos_id, small.eos_ids, small.adds_bos) == (bos_id, eos_ids, False)


def test_a_bos_that_is_added_is_needed() -> None:
    whole = make(bos_id=3, adds_bos=True)
    small = compact_tokenizer(whole, [0, 3])
    assert small.encode("aa") == [1, 0, 0]
    assert small.decode([1, 0, 0]) == "aa"
    with pytest.raises(CheckpointError, match="ids lacks the BOS id 3, which begins every text"):
        compact_tokenizer(whole, [0, 1])


def test_a_prefixed_space_is_taken_away_again() -> None:
    tokens = {0: b" a", 1: b"b", 2: b"c"}
    small = compact_tokenizer(Tokenizer(lambda text, specials: [0, 2], tokens, space_prefix=True), [0, 2])
    assert small.decode(small.encode("ac")) == "ac"


def test_specials_are_found_where_they_are_asked_for() -> None:
    whole = Tokenizer(lambda text, specials: [7] if specials else [1], {1: b"a", 7: b"<s>"})
    small = compact_tokenizer(whole, [1, 7])
    assert (small.encode("<s>"), small.encode("<s>", specials=True)) == ([0], [1])


@pytest.mark.parametrize("blocked", [False, True])
def test_load_tokenizer_applies_it(blocked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if blocked:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    else:
        pytest.importorskip("tokenizers")
    save_tokenizer(bpe.train(SING, 260).ranks, tmp_path)
    save_compact(USED, tmp_path)
    assert json.loads((tmp_path / "compact.json").read_text()) == {"ids": USED}
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(SING) == [2, 5, 6, 6, 2, 4, 1, 3, 4, 0, 3]
    assert tokenizer.vocab_size == 7
    with pytest.raises(ValueError, match=r"the text needs b'x', id 120"):
        tokenizer.encode("sax")
    assert load_tokenizer(tmp_path / "vocab.json").encode(SING) == SING_IDS  # a file is itself alone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("[1, 2]", "holds a JSON list"),
        ("{}", "has no list of ids"),
        ('{"ids": 3}', "has no list of ids"),
        ('{"ids": []}', "ids is empty"),
        ('{"ids": [1, "2"]}', r"ids\[1\] is '2'; it must be an integer of 0 or more"),
        ('{"ids": [1, 2.0]}', r"ids\[1\] is 2\.0; it must be an integer"),
        ('{"ids": [true]}', r"ids\[0\] is True; it must be an integer"),
        ('{"ids": [-1]}', r"ids\[0\] is -1; it must be an integer of 0 or more"),
        ('{"ids": [1, 1]}', r"ids\[1\] is 1, after 1; ids must increase"),
        ('{"ids": [1, 5, 3]}', r"ids\[2\] is 3, after 5; ids must increase"),
        ('{"ids": [1, 259, 260]}', "id 260 is not in the vocabulary of 260 ids"),
    ],
)
def test_bad_files(content: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    save_tokenizer(bpe.train(SING, 260).ranks, tmp_path)
    (tmp_path / "compact.json").write_text(content)
    with pytest.raises(CheckpointError, match=rf"compact\.json: {message}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("ids", [[], [2, 1], ["a"]])
def test_bad_ids_are_not_saved(ids: Sequence[Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="ids"):
        save_compact(ids, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_book(test_data: Path, book: str, book_ids: list[int]) -> None:
    assert (len(book_ids), len(collect_ids(book_ids))) == (145_997, 8_981)
    whole = load_tokenizer(test_data / "gpt2-bpe" / "encoder.json")
    small = compact_tokenizer(whole, collect_ids(book_ids))
    assert (small.vocab_size, small.bos_id, small.eos_ids) == (8_981, None, ())
    ids = small.encode(book)
    assert (min(ids), max(ids), len(ids)) == (0, 8_980, 145_997)
    assert small.decode(ids) == book
    assert [len(whole.encode(word)) for word in (" Holmes", " holmes", "Holmes")] == [1, 2, 2]
    with pytest.raises(ValueError, match="the text needs b' hol', id 6039, which is not one of the 8981 ids"):
        small.encode("Mr. holmes")
