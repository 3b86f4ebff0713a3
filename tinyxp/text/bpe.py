"""Byte-level byte-pair encoding: cut text into chunks and merge the bytes of each, best pair first."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import SupportsIndex

from tinyxp.text.bpe_training import Merge, Training, pair_counts, train
from tinyxp.text.chunks import (
    CL100K_PATTERN,
    GPT2_PATTERN,
    LLAMA3_PATTERN,
    O200K_PATTERN,
    QWEN2_PATTERN,
    SMOLLM_PATTERN,
    Rank,
    check_text,
    merge,
    split,
)

__all__ = [
    "CL100K_PATTERN",
    "GPT2_PATTERN",
    "LLAMA3_PATTERN",
    "O200K_PATTERN",
    "QWEN2_PATTERN",
    "SMOLLM_PATTERN",
    "ChunkEncoder",
    "Merge",
    "Rank",
    "Training",
    "byte_characters",
    "check_text",
    "decode",
    "encode",
    "encode_merges",
    "merge",
    "merge_encoder",
    "pair_counts",
    "rank_encoder",
    "spell_bytes",
    "split",
    "train",
    "unspell_bytes",
]

_CACHED_CHUNKS = 2**16
_CACHED_LENGTH = 64  # characters; words are shorter, and longer chunks hardly ever repeat


def encode(text: str, ranks: Mapping[bytes, int], *, pattern: str = GPT2_PATTERN) -> list[int]:
    """Return the ids of ``text``: in every chunk of ``pattern``, merge the lowest-ranked neighbours first.

    ``ranks`` maps a token's bytes to its id, which is its rank too, as in tiktoken's files. A chunk that is a
    token as a whole is that token. Raises ValueError for a byte without a token and for a lone surrogate.
    Source: Sennrich, Haddow, Birch 2016, over bytes as in Radford et al. 2019.
    """
    return rank_encoder(ranks, pattern)(text)


def encode_merges(
    text: str,
    vocab: Mapping[bytes, int],
    merges: Mapping[tuple[bytes, bytes], int],
    *,
    pattern: str = GPT2_PATTERN,
    ignore_merges: bool = False,
) -> list[int]:
    """Return the ids of ``text`` for a vocabulary whose ids are not its ranks: ``merges`` ranks the pairs.

    With ``ignore_merges``, a chunk that is a token as a whole is that token (Llama 3). Raises ValueError for
    a byte without a token and for a lone surrogate. Source: vocab.json and merges.txt of GPT-2; GGUF.
    """
    return merge_encoder(vocab, merges, pattern, ignore_merges=ignore_merges)(text)


def decode(ids: Iterable[SupportsIndex], ranks: Mapping[bytes, int]) -> str:
    """Return the text of ``ids``, with invalid UTF-8 as U+FFFD; ValueError for an id not in ``ranks``."""
    tokens = {rank: token for token, rank in ranks.items()}
    parts = []
    for index in map(operator.index, ids):
        if index not in tokens:
            raise ValueError(f"id {index} is not one of the vocabulary's {len(tokens)} ids")
        parts.append(tokens[index])
    return b"".join(parts).decode(errors="replace")


class ChunkEncoder:
    """Encode text by chunks that are independent of each other, and cache the short ones."""

    def __init__(
        self, split: Callable[[str], Iterable[str]], encode_chunk: Callable[[str], Sequence[int]]
    ) -> None:
        self._split = split
        self._encode_chunk = encode_chunk
        self._cache: dict[str, Sequence[int]] = {}

    def __call__(self, text: str) -> list[int]:
        check_text(text)
        ids: list[int] = []
        for chunk in self._split(text):
            chunk_ids = self._cache.get(chunk)
            if chunk_ids is None:
                chunk_ids = self._encode_chunk(chunk)
                if len(chunk) <= _CACHED_LENGTH:
                    if len(self._cache) >= _CACHED_CHUNKS:
                        self._cache.clear()
                    self._cache[chunk] = chunk_ids
            ids.extend(chunk_ids)
        return ids


def rank_encoder(ranks: Mapping[bytes, int], pattern: str) -> ChunkEncoder:
    """Return ``encode`` for these ranks, with a cache that lasts from call to call."""

    def rank(left: bytes, right: bytes) -> int | None:
        return ranks.get(left + right)

    return _byte_encoder(ranks, rank, pattern, whole_chunks=True)


def merge_encoder(
    vocab: Mapping[bytes, int],
    merges: Mapping[tuple[bytes, bytes], int],
    pattern: str,
    *,
    ignore_merges: bool = False,
) -> ChunkEncoder:
    """Return ``encode_merges`` for these merges, with a cache that lasts from call to call."""

    def rank(left: bytes, right: bytes) -> int | None:
        return merges.get((left, right))

    return _byte_encoder(vocab, rank, pattern, whole_chunks=ignore_merges)


def _byte_encoder(
    vocab: Mapping[bytes, int], rank: Rank, pattern: str, *, whole_chunks: bool
) -> ChunkEncoder:
    def encode_chunk(chunk: str) -> list[int]:
        data = chunk.encode()
        if whole_chunks and data in vocab:
            return [vocab[data]]
        parts = merge([data[i : i + 1] for i in range(len(data))], rank)
        try:
            return [vocab[part] for part in parts]
        except KeyError as error:
            raise ValueError(f"{error.args[0]!r} of {chunk[:40]!r} has no token") from None

    return ChunkEncoder(lambda text: split(text, pattern), encode_chunk)


@lru_cache(maxsize=1)
def byte_characters() -> tuple[str, ...]:
    """Return GPT-2's table: the printable character that spells each of the 256 bytes in a vocabulary file.

    A printable Latin-1 byte is its own character; the others are U+0100 and on. Source: Radford et al. 2019.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(0x100)
    return tuple(chr(byte if byte in plain else next(others)) for byte in range(256))


@lru_cache(maxsize=1)
def _unspelling() -> dict[int, int]:
    """Return the inverse for str.translate; Latin-1 characters outside the table map to what is no byte."""
    others = dict.fromkeys(range(0x100), 0x100)
    return others | {ord(character): byte for byte, character in enumerate(byte_characters())}


def spell_bytes(data: bytes) -> str:
    """Spell bytes as GPT-2's vocabulary files do: b" the" -> "Ġthe"."""
    table = byte_characters()
    return "".join(table[byte] for byte in data)


def unspell_bytes(token: str) -> bytes | None:
    """Return the bytes that GPT-2's table spells as ``token``; None if a character is not in the table."""
    try:
        return token.translate(_unspelling()).encode("latin-1")
    except UnicodeEncodeError:
        return None
