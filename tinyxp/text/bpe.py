"""Byte-level byte-pair encoding: text is cut into chunks; in the bytes of each, the best pair is joined."""

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import SupportsIndex

# The pre-tokenizers. Each covers every character, so nothing is lost; \p{N} is any number, not only 0 to 9.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Every digit is cut out first and GPT-2's pattern runs on what lies between, where a digit is an end of text.
SMOLLM_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_CL100K = (
    r"(?i:'(?:[sdmt]|ll|ve|re))|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_PATTERN = _CL100K.format(number=r"\p{N}{1,3}")
LLAMA3_PATTERN = CL100K_PATTERN
QWEN2_PATTERN = _CL100K.format(number=r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SUFFIX = r"(?i:'(?:[sdmt]|ll|ve|re))?"
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Rank = Callable[[bytes, bytes], float | None]

_CACHED_CHUNKS = 2**16
_CACHED_LENGTH = 64  # characters; words are shorter, and what is longer hardly ever comes twice


def encode(text: str, ranks: Mapping[bytes, int], *, pattern: str = GPT2_PATTERN) -> list[int]:
    """Ids of `text`: in every chunk of `pattern`, the neighbours of the lowest rank are joined first.

    `ranks` maps a token's bytes to its id, which is its rank too, as in tiktoken's files; a chunk that is a
    token as a whole is that token. ValueError for a byte that has no token and for a lone surrogate.
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
    """Ids of `text` for a vocabulary whose ids are not its ranks: `merges` maps a pair to its rank.

    With `ignore_merges` a chunk that is a token as a whole is that token, whatever its merges (Llama 3).
    Errors as for `encode`. Source: vocab.json and merges.txt of GPT-2; the same pairs in GGUF.
    """
    return merge_encoder(vocab, merges, pattern, ignore_merges=ignore_merges)(text)


def decode(ids: Iterable[SupportsIndex], ranks: Mapping[bytes, int]) -> str:
    """The text of `ids`; bytes that are not UTF-8 become U+FFFD. ValueError for an id that `ranks` lacks."""
    tokens = {rank: token for token, rank in ranks.items()}
    parts = []
    for index in map(operator.index, ids):
        if index not in tokens:
            raise ValueError(f"id {index} is not one of the vocabulary's {len(tokens)} ids")
        parts.append(tokens[index])
    return b"".join(parts).decode(errors="replace")


class ChunkEncoder:
    """text -> ids: cuts the text into chunks that are encoded independently, and remembers short ones."""

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
            known = self._cache.get(chunk)
            if known is None:
                known = self._encode_chunk(chunk)
                if len(chunk) <= _CACHED_LENGTH:
                    if len(self._cache) >= _CACHED_CHUNKS:
                        self._cache.clear()
                    self._cache[chunk] = known
            ids.extend(known)
        return ids


def rank_encoder(ranks: Mapping[bytes, int], pattern: str) -> ChunkEncoder:
    """`encode` with its cache kept from call to call."""

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
    """`encode_merges` with its cache kept from call to call."""

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


def split(text: str, pattern: str) -> Iterator[str]:
    """The chunks that `pattern` finds, and whatever lies between them, in order."""
    import regex  # type: ignore[import-untyped,unused-ignore]

    end = 0
    for found in regex.compile(pattern).finditer(text):
        if found.start() > end:
            yield text[end : found.start()]
        if found.end() > found.start():
            yield found.group()
        end = found.end()
    if end < len(text):
        yield text[end:]


def merge(parts: Sequence[bytes], rank: Rank) -> list[bytes]:
    """Joins the neighbours of the lowest rank, the leftmost of equals, until no two neighbours have a rank.

    A heap of pairs over a linked list: O(n log n) for n parts.
    """
    parts = list(parts)
    count = len(parts)
    before, after = list(range(-1, count - 1)), list(range(1, count + 1))
    heap: list[tuple[float, int, bytes, bytes]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < count:
            score = rank(parts[left], parts[right])
            if score is not None:
                heapq.heappush(heap, (score, left, parts[left], parts[right]))

    for right in range(1, count):
        offer(right - 1, right)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        # A pair is stale when either half has been joined to something else since it was offered.
        if right == count or parts[left] != first or parts[right] != second:
            continue
        parts[left], parts[right] = first + second, b""
        after[left] = after[right]
        if after[left] < count:
            before[after[left]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]


def check_text(text: object) -> None:
    """ValueError unless `text` is a str that UTF-8 can write."""
    if not isinstance(text, str):
        raise ValueError(f"text must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(text[error.start])
        raise ValueError(
            f"text has a lone surrogate, U+{surrogate:04X}, at index {error.start}: no UTF-8 for it"
        ) from None


@lru_cache(maxsize=1)
def byte_characters() -> tuple[str, ...]:
    """GPT-2's table: the printable character that stands for each of the 256 bytes in a vocabulary file.

    A printable Latin-1 byte stands for itself, the others for U+0100 and on. Source: Radford et al. 2019.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in plain else next(others)) for byte in range(256))


@lru_cache(maxsize=1)
def _unspelling() -> dict[int, int]:
    """For str.translate: a character of the table -> its byte, any other of Latin-1 -> what is no byte."""
    others = dict.fromkeys(range(0x100), 0x100)
    return others | {ord(character): byte for byte, character in enumerate(byte_characters())}


def spell_bytes(data: bytes) -> str:
    """Bytes as GPT-2's vocabulary files spell them: b" the" -> "Ġthe"."""
    table = byte_characters()
    return "".join(table[byte] for byte in data)


def unspell_bytes(token: str) -> bytes | None:
    """The bytes that GPT-2's table spells as `token`; None where a character is not in the table."""
    try:
        return token.translate(_unspelling()).encode("latin-1")
    except UnicodeEncodeError:
        return None
