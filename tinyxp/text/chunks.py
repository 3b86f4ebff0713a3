"""Cutting a text into chunks, and merging the bytes of one chunk into tokens."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

# The pre-tokenizers. Each covers every character, so nothing is lost; \p{N} is any number, not only 0 to 9.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Every digit is cut out first; GPT-2's pattern runs on the text between, and a digit ends that text.
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


def split(text: str, pattern: str) -> Iterator[str]:
    """Yield the chunks that ``pattern`` finds, and the text between them, in order."""
    import regex  # type: ignore[import-untyped,unused-ignore]

    end = 0
    for match in regex.compile(pattern).finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        if match.end() > match.start():
            yield match.group()
        end = match.end()
    if end < len(text):
        yield text[end:]


def merge(parts: Sequence[bytes], rank: Rank) -> list[bytes]:
    """Merge the neighbours of the lowest rank, leftmost first, until no two neighbours have a rank.

    Uses a heap of pairs over a linked list: O(n log n) for n parts.
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
        # A pair is stale if either half has been merged since it was offered.
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
    """Raise ValueError unless ``text`` is a str that UTF-8 can encode."""
    if not isinstance(text, str):
        raise ValueError(f"text must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(text[error.start])
        raise ValueError(
            f"text has a lone surrogate, U+{surrogate:04X}, at index {error.start}: no UTF-8 for it"
        ) from None
