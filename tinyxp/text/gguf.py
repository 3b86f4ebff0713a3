"""Tokenizers from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import map_file, name_in_errors
from tinyxp.formats.gguf_header import read_header
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer
from tinyxp.text.bytelevel import (
    byte_level_tokenizer,
    check_merges,
    find_unreachable_tokens,
    parse_merges,
    spell_ordinary_tokens,
)
from tinyxp.text.sentencepiece import parse_byte_token, sentencepiece_tokenizer
from tinyxp.text.specials import SpecialIds


class _PreTokenizer(NamedTuple):
    """What a name in ``tokenizer.ggml.pre`` means."""

    pattern: str
    ignore_merges: bool = False
    """Whether a chunk that is a token as a whole is that token, whatever its merges."""
    adds_bos: bool = False
    """Whether a BOS is added if tokenizer.ggml.add_bos_token does not say."""


_PRE_TOKENIZERS = {
    "gpt-2": _PreTokenizer(bpe.GPT2_PATTERN),
    "smollm": _PreTokenizer(bpe.SMOLLM_PATTERN),
    "llama-bpe": _PreTokenizer(bpe.LLAMA3_PATTERN, ignore_merges=True, adds_bos=True),
    "qwen2": _PreTokenizer(bpe.QWEN2_PATTERN),
}
# tokenizer.ggml.token_type
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

_PREFIX = "tokenizer.ggml."


def load_gguf(path: Path) -> Tokenizer:
    """Load the tokenizer in a GGUF file: byte-level BPE (``gpt2``) or SentencePiece's (``llama``).

    Control tokens are the specials; user-defined ones are found in every text, as in llama.cpp. Qwen 2's
    Hugging Face tokenizer composes characters (NFC) first; llama.cpp and this one do not. Raises
    CheckpointError for a bad file, one without a vocabulary, and an unknown tokenizer or pre-tokenizer.
    """
    with name_in_errors(path):
        metadata = read_header(map_file(path), string_lists=True).metadata
        model = _get(metadata, "model", str)
        if model not in ("gpt2", "llama"):
            raise CheckpointError(f"{_PREFIX}model {model!r} is not known; gpt2 and llama are")
        tokens = _get_list(metadata, "tokens", str)
        vocab = {token: index for index, token in enumerate(tokens)}
        if len(vocab) < len(tokens):
            index = next(index for index, token in enumerate(tokens) if vocab[token] != index)
            raise CheckpointError(f"tokens {index} and {vocab[tokens[index]]} are both {tokens[index]!r}")
        types = _get_list(metadata, "token_type", int) if _PREFIX + "token_type" in metadata else None
        if types is not None and len(types) != len(tokens):
            raise CheckpointError(f"has {len(types)} token types for {len(tokens)} tokens")
        if model == "gpt2":
            return _byte_level(metadata, vocab, types)
        return _sentencepiece(metadata, vocab, types)


def _byte_level(metadata: dict[str, Any], vocab: dict[str, int], types: list[int] | None) -> Tokenizer:
    name = _get(metadata, "pre", str)
    if name not in _PRE_TOKENIZERS:
        raise CheckpointError(f"{_PREFIX}pre {name!r} is not known; {', '.join(_PRE_TOKENIZERS)} are")
    pre_tokenizer = _PRE_TOKENIZERS[name]
    merges = parse_merges(_get_list(metadata, "merges", str))
    check_merges(merges, spell_ordinary_tokens(vocab))
    if types is None:
        specials, always = find_unreachable_tokens(vocab, merges), {}
    else:
        specials = _of_type(vocab, types, _CONTROL, _UNKNOWN)
        always = _of_type(vocab, types, _USER_DEFINED)
    return byte_level_tokenizer(
        vocab,
        specials,
        always,
        merges=merges,
        ids=SpecialIds(
            _get(metadata, "bos_token_id", int, None),
            _eos_ids(metadata, None),
            _get(metadata, "add_bos_token", bool, pre_tokenizer.adds_bos),
        ),
        pattern=pre_tokenizer.pattern,
        ignore_merges=pre_tokenizer.ignore_merges,
    )


def _sentencepiece(metadata: dict[str, Any], vocab: dict[str, int], types: list[int] | None) -> Tokenizer:
    scores = _get_list(metadata, "scores", float)
    if len(scores) != len(vocab):
        raise CheckpointError(f"has {len(scores)} scores for {len(vocab)} tokens")
    bos_id = _get(metadata, "bos_token_id", int, 1)
    eos_ids = _eos_ids(metadata, 2)
    if types is None:
        types = _guess_types(vocab, {_get(metadata, "unknown_token_id", int, 0), bos_id, *eos_ids})
    return sentencepiece_tokenizer(
        [token.replace("▁", " ").encode() for token in vocab],
        scores,
        specials=_of_type(vocab, types, _CONTROL, _UNKNOWN),
        always=_of_type(vocab, types, _USER_DEFINED),
        byte_ids=_find_byte_ids(_of_type(vocab, types, _BYTE)),
        unused=frozenset(_of_type(vocab, types, _UNUSED).values()),
        bos_id=bos_id,
        eos_ids=eos_ids,
        adds_bos=_get(metadata, "add_bos_token", bool, True),
        space_prefix=_get(metadata, "add_space_prefix", bool, True),
    )


def _guess_types(vocab: dict[str, int], controls: Collection[int]) -> list[int]:
    """Return the type of every token in a file that does not say."""
    return [
        _CONTROL if index in controls else _NORMAL if parse_byte_token(token.encode()) is None else _BYTE
        for token, index in vocab.items()
    ]


def _find_byte_ids(byte_tokens: dict[str, int]) -> dict[int, int]:
    """Return the id of every byte; CheckpointError for a token that spells none."""
    byte_ids: dict[int, int] = {}
    for token, index in byte_tokens.items():
        byte = parse_byte_token(token.encode())
        if byte is None:
            raise CheckpointError(f"token {index}, {token!r}, is of the byte type but spells no byte")
        byte_ids[byte] = index
    return byte_ids


def _of_type(vocab: dict[str, int], types: Sequence[int], *selected: int) -> dict[str, int]:
    return {token: index for token, index in vocab.items() if types[index] in selected}


def _eos_ids(metadata: dict[str, Any], default: int | None) -> tuple[int, ...]:
    """Return EOS, then the ends of a turn and of a message, if the file has them."""
    ends = (
        _get(metadata, "eos_token_id", int, default),
        _get(metadata, "eot_token_id", int, None),
        _get(metadata, "eom_token_id", int, None),
    )
    return tuple(index for index in ends if index is not None)


def _get(metadata: dict[str, Any], name: str, kind: type, *default: Any) -> Any:
    value = metadata.get(_PREFIX + name)
    if value is None:
        if default:
            return default[0]
        raise CheckpointError(f"has no {_PREFIX}{name}")
    if type(value) is not kind:
        raise CheckpointError(f"{_PREFIX}{name} is of type {type(value).__name__}, not {kind.__name__}")
    return value


def _get_list(metadata: dict[str, Any], name: str, kind: type) -> list[Any]:
    values: list[Any] = _get(metadata, name, list)
    if not values or type(values[0]) is not kind:  # an array of GGUF is of one type
        raise CheckpointError(f"{_PREFIX}{name} is not a list of {kind.__name__}")
    return values
