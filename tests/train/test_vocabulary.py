"""Vocabularies of a run: trained on its text, or what the text uses of a known tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

import tinyxp
from tinyxp.train.vocabulary import reduce_vocabulary, train_vocabulary

TEXT = "the old door of the old house was open and the dog ran out of the old house"


def test_a_trained_vocabulary_has_the_size_and_is_read_again(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(TEXT, 270)
    assert vocabulary.tokenizer.vocab_size == 270
    vocabulary.write(tmp_path)
    read = tinyxp.load_tokenizer(tmp_path)
    assert read.encode(TEXT) == vocabulary.tokenizer.encode(TEXT)
    assert read.decode(read.encode(TEXT)) == TEXT


def test_a_text_with_few_pairs_gives_fewer_tokens() -> None:
    assert train_vocabulary("ab ab", 1000).tokenizer.vocab_size < 270


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    train_vocabulary(TEXT, 280).write(tmp_path / "whole")
    return tmp_path / "whole"


def test_a_reduced_vocabulary_has_the_tokens_of_the_text_only(whole: Path, tmp_path: Path) -> None:
    vocabulary = reduce_vocabulary(str(whole), "the old dog")
    used = set(tinyxp.load_tokenizer(whole).encode("the old dog"))
    assert vocabulary.tokenizer.vocab_size == len(used) < 280
    vocabulary.write(tmp_path / "reduced")
    read = tinyxp.load_tokenizer(tmp_path / "reduced")
    assert read.decode(read.encode("the old dog")) == "the old dog"
    with pytest.raises(ValueError, match="compact vocabulary"):
        read.encode("zebra")


def test_files_of_another_tokenizer_do_not_stay(whole: Path, tmp_path: Path) -> None:
    folder, pair = tmp_path / "model", tmp_path / "pair"
    for path, names in ((pair, ("vocab.json", "merges.txt")), (folder, ("tokenizer.json",))):
        path.mkdir()
        for name in names:
            (path / name).write_bytes((whole / name).read_bytes())
    (folder / "notes.md").write_text("kept")
    reduce_vocabulary(str(pair), TEXT).write(folder)
    assert not (folder / "tokenizer.json").exists()
    assert (folder / "notes.md").exists()
    assert (folder / "vocab.json").read_bytes() == (whole / "vocab.json").read_bytes()


def test_a_compact_tokenizer_is_rejected(whole: Path, tmp_path: Path) -> None:
    reduce_vocabulary(str(whole), "the old dog").write(tmp_path / "reduced")
    with pytest.raises(ValueError, match="is compact; name the whole tokenizer"):
        reduce_vocabulary(str(tmp_path / "reduced"), "the")


def test_a_folder_without_files_for_transformers_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: has no tokenizer"):
        reduce_vocabulary(str(tmp_path), TEXT)
