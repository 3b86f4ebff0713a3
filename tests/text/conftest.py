"""Small vocabularies, and texts that try every branch of a tokenizer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tinyxp.text import bpe
from tinyxp.text.corpus import clean_gutenberg, decode_text
from tinyxp.text.tokenizer import load_tokenizer

PIECES = [
    *(" ", "  ", "\n", "\r\n", "\t", "\u3000", "\xa0", "\x85", "\u2028", "\x1c", "\x00", "\u200b", "\ufeff"),
    *(
        "a",
        "the",
        "The",
        "THE",
        "don't",
        "'S",
        "'LL",
        "'\u017f",
        "_",
        "!?",
        "//",
        "1",
        "42",
        "1234",
        "½",
        "٣",
        "Ⅷ",
    ),
    *(
        "é",
        "e\u0301",
        "ß",
        "ǅ",
        "ʰ",
        "你好",
        "こんにちは",
        "привет",
        "שלום",
        "हिन्दी",
        "🙂",
        "👩\u200d👩\u200d👧",
        "🇬🇧",
    ),
    *("<|endoftext|>", "<s>", "</s>", "<|e|>", "<0x41>", "▁", "Ġ"),
]


@pytest.fixture(scope="session")
def mixed_texts() -> st.SearchStrategy[str]:
    """Mixed scripts, spaces, digits, contractions, emoji, control characters and spelled special tokens.

    No unassigned characters: libraries disagree on their kind, each having a Unicode version of its own.
    """
    anything = st.text(st.characters(exclude_categories=["Cc", "Cn", "Co", "Cs"]), max_size=3)
    return st.lists(st.sampled_from(PIECES) | anything, max_size=12).map("".join)


@pytest.fixture(scope="session")
def round_trip_texts() -> list[str]:
    return [
        "hello",
        " hello",
        "  hello",
        "hello !",
        "",
        " ",
        " \n x",
        "🙂 é",
        "你好, мир",
        "a<|e|>b",
        "▁ ▁",
        "<s>",
    ]


@pytest.fixture(scope="session")
def byte_vocab() -> dict[str, int]:
    """The 256 bytes at their own ids, one special token, and what two merges make."""
    vocab = {character: byte for byte, character in enumerate(bpe.byte_characters())}
    return {**vocab, "<|e|>": 256, "he": 257, "hel": 258}


@pytest.fixture(scope="session")
def llama_pieces() -> list[str]:
    """A SentencePiece vocabulary: three control tokens, the bytes, and a few scored pieces."""
    return [
        *("<unk>", "<s>", "</s>"),
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *("▁", "h", "e", "l", "o", "▁h", "el", "lo", "▁hel", "▁hello"),
    ]


@pytest.fixture(scope="session")
def llama_scores(llama_pieces: list[str]) -> list[float]:
    return [0.0] * 259 + [-float(index) for index in range(len(llama_pieces) - 259)]


@pytest.fixture
def write_llama2c(tmp_path: Path) -> Callable[..., Path]:
    """Writes a llama2.c tokenizer file from (score, bytes) pairs."""

    def write(
        tokens: Sequence[tuple[float, bytes]], name: str = "tok.bin", longest: int | None = None
    ) -> Path:
        path = tmp_path / name
        if longest is None:
            longest = max(len(token) for _, token in tokens)
        body = b"".join(struct.pack("<fi", score, len(token)) + token for score, token in tokens)
        path.write_bytes(struct.pack("<i", longest) + body)
        return path

    return write


@pytest.fixture(scope="session")
def book(test_data: Path) -> str:
    """The Adventures of Sherlock Holmes, cleaned."""
    return clean_gutenberg(decode_text((test_data / "books" / "pg1661_raw.txt").read_bytes()))


@pytest.fixture(scope="session")
def book_ids(test_data: Path, book: str) -> list[int]:
    """The same in GPT-2's tokens."""
    return load_tokenizer(test_data / "gpt2-bpe" / "encoder.json").encode(book)
