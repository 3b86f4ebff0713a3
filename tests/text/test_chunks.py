"""The patterns that cut text into chunks, and merging against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyxp.text import bpe


def naive_merge(parts: list[bytes], rank: bpe.Rank) -> list[bytes]:
    """The definition: look at every pair, join the first of the lowest rank, start again."""
    parts = list(parts)
    while True:
        scored = [(rank(parts[i], parts[i + 1]), i) for i in range(len(parts) - 1)]
        ranked = [(score, i) for score, i in scored if score is not None]
        if not ranked:
            return parts
        _, i = min(ranked)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@given(
    tokens=st.lists(st.binary(min_size=2, max_size=5).map(lambda b: bytes(x % 3 for x in b)), unique=True),
    data=st.binary(max_size=40).map(lambda b: bytes(x % 3 for x in b)),
)
def test_merge_is_the_naive_algorithm(tokens: list[bytes], data: bytes) -> None:
    ranks = {token: index // 2 for index, token in enumerate(tokens)}  # ties, too
    parts = [data[i : i + 1] for i in range(len(data))]
    # Bytes of 0 are parts like any other.
    assert bpe.merge(parts, lambda a, b: ranks.get(a + b)) == naive_merge(
        parts, lambda a, b: ranks.get(a + b)
    )


@pytest.mark.parametrize(
    ("pattern", "chunks"),
    [
        (bpe.GPT2_PATTERN, ["I", "'m", " 1234", "  ", " x", "!!", "\n", "\n", "DON", "'", "T"]),
        (
            bpe.SMOLLM_PATTERN,
            ["I", "'m", " ", "1", "2", "3", "4", "  ", " x", "!!", "\n", "\n", "DON", "'", "T"],
        ),
        (bpe.LLAMA3_PATTERN, ["I", "'m", " ", "123", "4", "  ", " x", "!!\n\n", "DON", "'T"]),
        (bpe.QWEN2_PATTERN, ["I", "'m", " ", "1", "2", "3", "4", "  ", " x", "!!\n\n", "DON", "'T"]),
        (bpe.O200K_PATTERN, ["I'm", " ", "123", "4", "  ", " x", "!!\n\n", "DON'T"]),
    ],
)
def test_patterns(pattern: str, chunks: list[str]) -> None:
    assert list(bpe.split("I'm 1234   x!!\n\nDON'T", pattern)) == chunks


def test_a_digit_ends_the_spaces_before_it_for_smollm() -> None:
    assert list(bpe.split("a  1  b", bpe.SMOLLM_PATTERN)) == ["a", "  ", "1", " ", " b"]
    assert list(bpe.split("a  1  b", bpe.GPT2_PATTERN)) == ["a", " ", " 1", " ", " b"]


@given(data=st.data())
@pytest.mark.parametrize("name", ["GPT2", "SMOLLM", "LLAMA3", "QWEN2", "CL100K", "O200K"])
def test_patterns_cover_every_text(
    name: str, mixed_texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    import regex

    text = data.draw(mixed_texts)
    assert "".join(regex.findall(getattr(bpe, f"{name}_PATTERN"), text)) == text


@given(data=st.data())
@pytest.mark.parametrize(
    ("pattern", "original"),
    [
        (
            bpe.LLAMA3_PATTERN,
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        (
            bpe.QWEN2_PATTERN,
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        (bpe.SMOLLM_PATTERN, None),
    ],
)
def test_patterns_are_those_of_tokenizers(
    pattern: str, original: str | None, mixed_texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    parts = tokenizers.pre_tokenizers
    if original is None:
        byte_level = parts.ByteLevel(add_prefix_space=False, use_regex=True)
        theirs = parts.Sequence([parts.Digits(individual_digits=True), byte_level])
    else:
        split = parts.Split(tokenizers.Regex(original), behavior="isolated")
        theirs = parts.Sequence([split, parts.ByteLevel(add_prefix_space=False, use_regex=False)])
    text = data.draw(mixed_texts)
    spelled = [bpe.spell_bytes(chunk.encode()) for chunk in bpe.split(text, pattern)]
    assert spelled == [chunk for chunk, _ in theirs.pre_tokenize_str(text)]
