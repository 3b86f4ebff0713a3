"""Training byte-pair encoding: find the tokens of a text, one merge after another."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tinyxp.checks import as_integer
from tinyxp.text.chunks import GPT2_PATTERN, check_text, merge, split

Pair = tuple[bytes, bytes]


class Merge(NamedTuple):
    """Two tokens that became one, and how often they were neighbours."""

    left: bytes
    right: bytes
    count: int  # type: ignore[assignment]  # tuple.count is of no use here


class Training(NamedTuple):
    """The result of training."""

    ranks: dict[bytes, int]
    """A token's bytes -> its id, which is its rank too."""
    merges: list[Merge]
    """The merges that created the ids from 256 on."""


def train(text: str, vocab_size: int, *, pattern: str = GPT2_PATTERN) -> Training:
    """Merge the commonest pair of neighbours until there are ``vocab_size`` tokens or no neighbours are left.

    Among equally common pairs, the one with the lowest ids is merged first. Ids 0 to 255 are the bytes, and
    each merge adds the next id. Pairs are counted inside the chunks of ``pattern`` and may overlap: "aaaa"
    has three. After each step, the tokens are those that ``encode`` gives with the ranks so far. A merge
    costs time for every chunk that it changes, so a pattern that leaves a long text in one chunk is slow.
    Raises ValueError for an empty text, for anything but text, and for a vocab_size below 256. Source:
    Sennrich, Haddow, Birch 2016.
    """
    check_text(text)
    if not text:
        raise ValueError("text is empty; training counts the pairs of at least one character")
    size = as_integer("vocab_size", vocab_size, low=256)
    ranks = {bytes([byte]): byte for byte in range(256)}
    merges: list[Merge] = []
    segments = _Segments(text, pattern, ranks)
    # Commonest first. An entry whose count has changed since is stale: the pair has a newer one.
    heap = [(-count, ranks[pair[0]], ranks[pair[1]], pair) for pair, count in segments.counts.items()]
    heapq.heapify(heap)
    while heap and len(ranks) < size:
        negated, _, _, pair = heapq.heappop(heap)
        count = -negated
        if segments.counts[pair] != count:
            continue
        ranks[pair[0] + pair[1]] = len(ranks)
        merges.append(Merge(*pair, count))
        for left, right in segments.join(pair):
            if (count := segments.counts[left, right]) > 0:
                heapq.heappush(heap, (-count, ranks[left], ranks[right], (left, right)))
    return Training(ranks, merges)


def pair_counts(text: str, ranks: Mapping[bytes, int], *, pattern: str = GPT2_PATTERN) -> Counter[Pair]:
    """Count how often two tokens are neighbours in a chunk of ``text`` encoded with ``ranks``.

    Training merges the commonest of these pairs next. Raises ValueError for a byte without a token and for a
    lone surrogate.
    """
    check_text(text)
    return _Segments(text, pattern, ranks).counts


class _Segments:
    """The tokens of every distinct chunk, the counts of neighbouring pairs, and the chunks of each pair."""

    def __init__(self, text: str, pattern: str, ranks: Mapping[bytes, int]) -> None:
        chunks = Counter(split(text, pattern))
        self.times = list(chunks.values())
        self.parts = [_tokenize(chunk, ranks) for chunk in chunks]
        self.counts: Counter[Pair] = Counter()
        self.chunks: defaultdict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self.parts)):
            self._add(index)

    def join(self, pair: Pair) -> set[Pair]:
        """Merge ``pair`` everywhere and return the pairs whose counts have changed.

        No other pair has the same bytes. Bytes across whose ends nothing was merged have been merged inside
        as they are everywhere, so the new token is not a part of an earlier one.
        """
        changed: set[Pair] = set()
        for index in tuple(self.chunks[pair]):
            changed.update(self._remove(index))
            self.parts[index] = _join_pair(self.parts[index], pair)
            changed.update(self._add(index))
        return changed

    def _add(self, index: int) -> Iterator[Pair]:
        for pair in pairwise(self.parts[index]):
            self.counts[pair] += self.times[index]
            self.chunks[pair].add(index)
        return pairwise(self.parts[index])

    def _remove(self, index: int) -> Iterator[Pair]:
        for pair in pairwise(self.parts[index]):
            self.counts[pair] -= self.times[index]
            self.chunks[pair].discard(index)
        return pairwise(self.parts[index])


def _tokenize(chunk: str, ranks: Mapping[bytes, int]) -> list[bytes]:
    data = chunk.encode()
    if data in ranks:
        return [data]
    parts = merge([data[i : i + 1] for i in range(len(data))], lambda left, right: ranks.get(left + right))
    for part in parts:
        if part not in ranks:
            raise ValueError(f"{part!r} of {chunk[:40]!r} has no token")
    return parts


def _join_pair(parts: Sequence[bytes], pair: Pair) -> list[bytes]:
    joined: list[bytes] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined
