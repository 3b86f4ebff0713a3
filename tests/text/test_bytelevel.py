"""GPT-2's vocab.json and merges.txt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.tokenizer import load_tokenizer

MERGES = "#version: 0.2\nh e\nhe l\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, byte_vocab: dict[str, int]) -> Write:
    def write(vocab: dict[str, int] | str = byte_vocab, merges: str = MERGES) -> Path:
        content = vocab if isinstance(vocab, str) else json.dumps(vocab)
        (tmp_path / "vocab.json").write_text(content, encoding="utf-8")
        (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize("merges", [MERGES, "h e\nhe l", "h e\r\nhe l\r\n"])
def test_vocabulary_and_merges(write: Write, merges: str, round_trip_texts: list[str]) -> None:
    tokenizer = load_tokenizer(write(merges=merges))
    assert tokenizer.encode("hello") == [258, *b"lo"]
    assert tokenizer.encode("a<|e|>b") == [97, 60, 124, 101, 124, 62, 98]
    assert tokenizer.encode("a<|e|>b", specials=True) == [97, 256, 98]
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (259, None, ())
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text, specials=True)) == text


def test_a_merge_may_begin_with_a_hash(write: Write, byte_vocab: dict[str, int]) -> None:
    tokenizer = load_tokenizer(write(byte_vocab | {"##": 259}, "# #\nh e\nhe l\n"))
    assert tokenizer.encode("##") == [259]


def test_the_config_beside_it_is_read(write: Write) -> None:
    folder = write()
    config = {"bos_token": "<|e|>", "eos_token": {"content": "<|e|>"}, "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (256, (256,), True)
    assert tokenizer.encode("h") == [256, 104]


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ("h e\nh e\n", "merge 1, 'h e', repeats merge 0"),
        ("h\n", "merge 0 is not two tokens: 'h'"),
        ("h e l\n", "merge 0 is not two tokens"),
        ("h  e\n", "merge 0 is not two tokens"),
        ("h 你\n", "merge 0 is not two tokens"),
        ("e l\n", "merge 0, b'e' and b'l': b'el' is not in the vocabulary"),
    ],
)
def test_bad_merges(write: Write, merges: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        load_tokenizer(write(merges=merges))
    assert str(caught.value).count("merges.txt") == 1


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ("[]", "vocab.json: holds a JSON list"),
        ('{"a": 0, "a": 1}', "vocab.json: has the key 'a' twice"),
        ('{"a": 0, "b": 0}', "vocab.json: the id 0 belongs to both"),
    ],
)
def test_bad_vocabularies(write: Write, vocab: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(write(vocab))


def test_merges_that_are_not_utf8(write: Write) -> None:
    folder = write()
    (folder / "merges.txt").write_bytes(b"\xff\xfeh")
    with pytest.raises(CheckpointError, match=r"merges\.txt: .*can't decode byte 0xff in position 0"):
        load_tokenizer(folder)


def test_a_bad_config_is_named_once(write: Write) -> None:
    folder = write()
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<x>"}')
    with pytest.raises(CheckpointError) as caught:
        load_tokenizer(folder)
    assert (
        str(caught.value) == f"{folder / 'tokenizer_config.json'}: bos_token '<x>' is not in the vocabulary"
    )


def test_gpt2(test_data: Path, mixed_texts: st.SearchStrategy[str]) -> None:
    tokenizer = load_tokenizer(test_data / "gpt2-bpe" / "encoder.json")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (50257, 50256, (50256,))
    assert tokenizer.encode("<|endoftext|>", specials=True) == [50256]
    assert 50256 not in tokenizer.encode("<|endoftext|>")

    @given(mixed_texts | st.text(), st.booleans())
    def round_trip(text: str, specials: bool) -> None:
        assert tokenizer.decode(tokenizer.encode(text, specials=specials)) == text

    round_trip()
