"""Small byte-level vocabularies: built from a text, encoded by definition, and written as files."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.strategies import seeds
from tinyxp.text.tokenizer import Tokenizer, load_tokenizer

SPECIAL = "<|e|>"
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""From encoder.py of GPT-2's release."""
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"any": GPT2_PATTERN, "gpt2": GPT2_PATTERN, "cl100k_base": _CL100K, "o200k_base": _O200K}
"""The name of a rank file -> the pattern of that name in tiktoken_ext.openai_public."""

_FIM = {f"<|fim_{part}|>": 100258 + i for i, part in enumerate(("prefix", "middle", "suffix"))}
SPECIALS: dict[str, dict[str, int]] = {
    "any": {},
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k_base": {"<|endoftext|>": 100257, **_FIM, "<|endofprompt|>": 100276},
    "o200k_base": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}
"""The name of a rank file -> its special tokens, from the same place."""

_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
_CHARACTERS = {byte: chr(byte) for byte in _PLAIN} | {byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}


class Vocabulary(NamedTuple):
    """The 256 bytes and the tokens that merges make of them.

    If ``ranked``, ids are ranks, as in tiktoken's files: the rank of a pair is that of its token, and a piece
    that is a token becomes that token. Otherwise ids have any order, and merges are ranked by theirs.
    """

    ids: dict[bytes, int]
    merges: list[tuple[bytes, bytes]]
    ranked: bool

    def encode(self, pieces: list[str]) -> list[int]:
        """Return ids by definition: in each piece merge the first pair of the lowest rank repeatedly."""
        ids = []
        for piece in pieces:
            parts = [bytes([byte]) for byte in piece.encode()]
            if self.ranked and piece.encode() in self.ids:
                parts = [piece.encode()]
            while ranks := [(self._rank(*pair), at) for at, pair in enumerate(pairwise(parts))]:
                rank, at = min(ranks)
                if rank == len(self.ids):
                    break
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            ids += [self.ids[part] for part in parts]
        return ids

    def _rank(self, left: bytes, right: bytes) -> int:
        if self.ranked:
            return self.ids.get(left + right, len(self.ids))
        return self.merges.index((left, right)) if (left, right) in self.merges else len(self.ids)


def spelled(data: bytes) -> str:
    """Return GPT-2's spelling of bytes: printable Latin-1 unchanged, the others from U+0100 on."""
    return "".join(_CHARACTERS[byte] for byte in data)


def draw_vocabulary(draw: Draw, text: str, *, ranked: bool = False) -> Vocabulary:
    """Draw a vocabulary with a few merges of the text."""
    rng = np.random.default_rng(draw("seed of merges", seeds()))
    words = [[bytes([b]) for b in word.encode()] for word in re.findall(r" ?\w+|\W", text)]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw("merges", st.integers(0, 12))):
        made = {left + right for left, right in merges}
        pairs = [pair for word in words for pair in pairwise(word) if pair[0] + pair[1] not in made]
        if not pairs:
            break
        pair = pairs[int(rng.integers(len(pairs)))]
        merges.append(pair)
        for word in words:
            for at in range(len(word) - 1, 0, -1):
                if tuple(word[at - 1 : at + 1]) == pair:
                    word[at - 1 : at + 1] = [pair[0] + pair[1]]
    tokens = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in merges)]
    order = np.arange(len(tokens)) if ranked else rng.permutation(len(tokens))
    return Vocabulary({token: int(i) for token, i in zip(tokens, order, strict=True)}, merges, ranked)


@contextmanager
def load_from_files(
    vocabulary: Vocabulary, kind: str, config: dict[str, Any] | None = None
) -> Iterator[Tokenizer]:
    """Load tinyxp's tokenizer of a vocabulary from files of one kind; rank files have no special token."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        vocab = {spelled(token): i for token, i in vocabulary.ids.items()} | {SPECIAL: len(vocabulary.ids)}
        pairs = [f"{spelled(left)} {spelled(right)}" for left, right in vocabulary.merges]
        if config is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        if kind == "vocab.json":
            (folder / kind).write_text(json.dumps(vocab))
            (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]), encoding="utf-8")
            yield load_tokenizer(folder)
        elif kind == "tokenizer.json":
            as_package_tokenizer(vocabulary).save(str(folder / kind))
            yield load_tokenizer(folder)
        else:
            lines = [base64.b64encode(token) + b" %d" % i for token, i in vocabulary.ids.items()]
            (folder / f"{kind}.tiktoken").write_bytes(b"\n".join(lines))
            yield load_tokenizer(folder / f"{kind}.tiktoken")


def as_package_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return the vocabulary as a tokenizer of the package tokenizers."""
    package = import_module("tokenizers")
    vocab = {spelled(token): i for token, i in vocabulary.ids.items()}
    merges = [(spelled(left), spelled(right)) for left, right in vocabulary.merges]
    tokenizer = package.Tokenizer(package.models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = package.decoders.ByteLevel()
    tokenizer.add_special_tokens([SPECIAL])
    return tokenizer


def without_unstable(text: str) -> str:
    """Return the text without characters that versions of Unicode classify differently."""
    old = unicodedata.ucd_3_2_0.category
    keep = [c for c in text if old(c) == unicodedata.category(c) != "Cn" or "\U0001f300" <= c <= "\U0001f64f"]
    return "".join(keep)
