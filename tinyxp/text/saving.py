"""Saving a byte-pair vocabulary as files that ``tokenizers``, transformers and this library read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyxp.checks import as_integer
from tinyxp.files import make_folder, replacing
from tinyxp.text import bpe
from tinyxp.text.compact import COMPACT_NAME


def save_tokenizer(
    ranks: Mapping[bytes, int], folder: str | os.PathLike[str], *, pattern: str = bpe.GPT2_PATTERN
) -> None:
    """Write the tokenizer.json that gives the ids of ``bpe.encode(text, ranks, pattern=...)``.

    Also writes tokenizer_config.json for transformers and, for GPT-2's pattern, vocab.json and merges.txt,
    which ``load_tokenizer`` reads without ``tokenizers``. Files of these names are replaced. A compact.json,
    and under another pattern the pair, would belong to an earlier vocabulary and is removed. ``pattern`` must
    mean the same to Python's ``regex`` and to Oniguruma, as those of ``bpe`` do. Raises ValueError if
    ``ranks`` lacks a byte, gives an id twice, or has a token that lower ranks do not merge from two.
    """
    vocab, merges = _spell_vocabulary(ranks), list(map(_spell_pair, _find_merges(ranks)))
    contents = {
        "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n",
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}, indent=2
        ),
        "tokenizer.json": json.dumps(_tokenizer_json(vocab, merges, pattern), ensure_ascii=False),
    }
    stale = [COMPACT_NAME]
    if pattern != bpe.GPT2_PATTERN:
        stale += ["merges.txt", "vocab.json"]
    path = Path(folder)
    with make_folder(path):
        for name in stale:
            (path / name).unlink(missing_ok=True)
            contents.pop(name, None)
        for name, content in contents.items():
            with replacing(path / name) as file:
                file.write(content.encode())


def _spell_vocabulary(ranks: Mapping[bytes, int]) -> dict[str, int]:
    """Return the vocabulary in GPT-2's spelling, in the order of the ids."""
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ValueError(f"ranks lacks the byte {missing[0]:#04x}; every byte must have an id")
    owner: dict[int, bytes] = {}
    for token, rank in ranks.items():
        index = as_integer(f"the rank of {token!r}", rank, low=0)
        if index in owner:
            raise ValueError(f"ranks gives the id {index} to both {owner[index]!r} and {token!r}")
        owner[index] = token
    return {bpe.spell_bytes(owner[index]): index for index in sorted(owner)}


def _find_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the two tokens that each longer one is merged from, in the order of the ranks.

    In every text, a token's bytes are merged as they are alone, unless something is merged across their ends.
    So the last pair is always the same, however many ways there are to cut the token in two. One merge for
    each token is enough, and a chunk that is a token as a whole needs no rule of its own.
    """
    merges = []
    for token, own in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue

        def below(left: bytes, right: bytes, own: int = own) -> int | None:
            rank = ranks.get(left + right)
            return rank if rank is not None and rank < own else None

        parts = bpe.merge([token[i : i + 1] for i in range(len(token))], below)
        if len(parts) != 2:
            raise ValueError(
                f"the token {token!r} of rank {own} is not merged from two; the lower ranks give {parts}"
            )
        merges.append((parts[0], parts[1]))
    return merges


def _spell_pair(pair: tuple[bytes, bytes]) -> tuple[str, str]:
    return bpe.spell_bytes(pair[0]), bpe.spell_bytes(pair[1])


def _tokenizer_json(vocab: dict[str, int], merges: list[tuple[str, str]], pattern: str) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    pre_tokenizer: dict[str, Any] = byte_level
    if pattern != bpe.GPT2_PATTERN:  # which is that of ByteLevel
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
