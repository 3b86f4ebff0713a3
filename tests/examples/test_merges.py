"""merges: what four merges of a toy text are, and which pairs they beat."""

from __future__ import annotations

from itertools import pairwise

from tinyxp.text import bpe


def test_merges_and_their_runners_up(example, is_png) -> None:
    shown = example("merges")
    assert shown.lines[0] == "'sing sing sings song sang': 25 bytes; spaces are shown as _"
    assert [" ".join(line.split()) for line in shown.lines[2:6]] == [
        "1: n + g 256 5 _ + s 4 i + n 3 s + i 3 20",
        "2: _ + s 257 4 i + ng 3 s + i 3 a + ng 1 16",
        "3: i + ng 258 3 _s + i 2 a + ng 1 o + ng 1 13",
        "4: _s + ing 259 2 a + ng 1 o + ng 1 s + ing 1 11",
    ]
    assert "in the end: s ing _sing _sing s _s o ng _s a ng" in shown.lines
    assert is_png(shown.picture)


def test_steps_agree_with_a_count_by_hand(example) -> None:
    """Every step again with lists and loops alone."""
    found = example("merges").globals
    chunks = [list(word) for word in ("sing", " sing", " sings", " song", " sang")]
    for merge, ranked, after in found["learn"]():
        pairs = [pair for chunk in chunks for pair in pairwise(chunk)]
        counts = {tuple(token.decode() for token in pair): count for pair, count in ranked}
        assert counts == {pair: pairs.count(pair) for pair in pairs}
        assert [count for _, count in ranked] == sorted(counts.values(), reverse=True)
        left, right = merge.left.decode(), merge.right.decode()
        chunks = [joined(chunk, left, right) for chunk in chunks]
        assert after == [token for chunk in chunks for token in chunk]
    assert len(after) == 11
    assert len(bpe.encode(found["TEXT"], bpe.train(found["TEXT"], 260).ranks)) == 11


def joined(chunk: list[str], left: str, right: str) -> list[str]:
    result: list[str] = []
    for token in chunk:
        if result and (result[-1], token) == (left, right):
            result[-1] += token
        else:
            result.append(token)
    return result
