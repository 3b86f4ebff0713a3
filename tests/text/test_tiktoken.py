"""tiktoken's encodings and rank files."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.errors import CheckpointError
from tinyxp.text.tiktoken import ENCODINGS
from tinyxp.text.tokenizer import load_tokenizer


@pytest.fixture
def tiktoken_cache(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))


def write_ranks(path: Path, ranks: dict[bytes, int]) -> Path:
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def byte_ranks() -> dict[bytes, int]:
    return {bytes([byte]): byte for byte in range(256)}


def test_rank_file(tmp_path: Path, round_trip_texts: list[str]) -> None:
    ranks = byte_ranks() | {b"he": 256, b" 1": 257}
    tokenizer = load_tokenizer(write_ranks(tmp_path / "mine.tiktoken", ranks))
    assert tokenizer.encode("he 1") == [256, 257]
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (258, None, ())
    for text in round_trip_texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_name_tells_pattern_and_specials(tmp_path: Path) -> None:
    ranks = byte_ranks() | {b" 1": 257}
    tokenizer = load_tokenizer(write_ranks(tmp_path / "cl100k_base.tiktoken", ranks))
    assert tokenizer.encode(" 1<|endoftext|>", specials=True) == [32, 49, 100257]
    assert (tokenizer.vocab_size, tokenizer.eos_ids) == (100277, (100257,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n", "has no ranks"),
        (b"YQ==\n", "line 1 is not a token and a rank"),
        (b"YQ== 0\nYg== 1 2\n", "line 2 is not a token and a rank"),
        (b"YQ?== 0\n", "line 1 is not a token and a rank"),
        (b"YQ== x\n", "line 1 is not a token and a rank"),
        (b"YQ== " + b"9" * 5000, "line 1 is not a token and a rank"),
        (b"YQ== -1\n", "line 1: token b'a' of rank -1"),
        (b" 1\n", "line 1: token b'' of rank 1"),
        (b"YQ== 0\nYQ== 1\n", "line 2 repeats"),
        (b"YQ== 0\nYg== 0\n", "line 2 repeats"),
    ],
)
def test_bad_rank_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.tiktoken"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"x\.tiktoken: {message}"):
        load_tokenizer(path)


def test_a_rank_that_is_a_specials(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"line 1 has the rank 50256, which is <\|endoftext\|>'s"):
        load_tokenizer(write_ranks(tmp_path / "gpt2.tiktoken", {b"a": 50256}))


@pytest.mark.usefixtures("tiktoken_cache")
@pytest.mark.parametrize("name", ["gpt2", "tiktoken:gpt2", "r50k_base", "cl100k_base", "tiktoken:o200k_base"])
def test_encodings(name: str, mixed_texts: st.SearchStrategy[str]) -> None:
    tokenizer = load_tokenizer(name)

    @given(mixed_texts, st.booleans())
    def round_trip(text: str, specials: bool) -> None:
        assert tokenizer.decode(tokenizer.encode(text, specials=specials)) == text

    round_trip()
    end = tokenizer.eos_ids[0]
    assert end == tokenizer.bos_id == ENCODINGS[name.removeprefix("tiktoken:")].specials["<|endoftext|>"]
    assert tokenizer.encode("a<|endoftext|>", specials=True) == [*tokenizer.encode("a"), end]
    assert end not in tokenizer.encode("a<|endoftext|>")


@pytest.mark.usefixtures("tiktoken_cache")
@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])
def test_rank_files_are_the_encodings(name: str, tmp_path: Path, mixed_texts: st.SearchStrategy[str]) -> None:
    import tiktoken

    ranks = tiktoken.get_encoding(name)._mergeable_ranks
    ours, theirs = load_tokenizer(write_ranks(tmp_path / f"{name}.tiktoken", ranks)), load_tokenizer(name)
    assert (ours.vocab_size, ours.eos_ids) == (theirs.vocab_size, theirs.eos_ids)

    @given(mixed_texts, st.booleans())
    def agree(text: str, specials: bool) -> None:
        assert ours.encode(text, specials=specials) == theirs.encode(text, specials=specials)

    agree()


@pytest.mark.usefixtures("tiktoken_cache")
def test_holes_are_no_ids() -> None:
    with pytest.raises(ValueError, match=r"id 100256 .* 100277 ids"):
        load_tokenizer("cl100k_base").decode([100256])


def test_an_unknown_encoding() -> None:
    pytest.importorskip("tiktoken")
    with pytest.raises(ValueError, match=r"no encoding 'gpt9'; it has .*gpt2"):
        load_tokenizer("tiktoken:gpt9")


def test_ranks_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")

    def fail(name: str) -> None:
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", fail)
    with pytest.raises(CheckpointError, match="ranks of tiktoken's gpt2 cannot be read: no network"):
        load_tokenizer("gpt2")


def test_without_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[hf\]'"):
        load_tokenizer("gpt2")
