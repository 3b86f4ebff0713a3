"""Tokenizers from the metadata of a GGUF file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinyxp.errors import CheckpointError
from tinyxp.files import map_file, name_in_errors
from tinyxp.formats.gguf_header import read_header
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer
from tinyxp.text.bytelevel import (
    byte_level_tokenizer,
    check_merges,
    ordinary_tokens,
    parse_merges,
    unreachable_tokens,
)
from tinyxp.text.sentencepiece import parse_byte_token, sentencepiece_tokenizer
from tinyxp.text.specials import SpecialIds

# tokenizer.ggml.pre -> pattern, whether a whole chunk that is a token needs no merges, whether BOS is added
# where tokenizer.ggml.add_bos_token does not say.
_PRE_TOKENIZERS = {
    "gpt-2": (bpe.GPT2_PATTERN, False, False),
    "smollm": (bpe.SMOLLM_PATTERN, False, False),
    "llama-bpe": (bpe.LLAMA3_PATTERN, True, True),
    "qwen2": (bpe.QWEN2_PATTERN, False, False),
}
# tokenizer.ggml.token_type; 1 is an ordinary token.
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6

_PREFIX = "tokenizer.ggml."


def load_gguf(path: Path) -> Tokenizer:
    """The tokenizer in a GGUF file: byte-level BPE (`gpt2`) or SentencePiece's (`llama`).

    Control tokens are the specials; user-defined ones are found in every text, as llama.cpp does. Qwen 2's
    Hugging Face tokenizer composes characters (NFC) first, llama.cpp and this one do not. CheckpointError
    for a bad file, one without a vocabulary, and a tokenizer or pre-tokenizer that is not known.
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
    pre = _get(metadata, "pre", str)
    if pre not in _PRE_TOKENIZERS:
        raise CheckpointError(f"{_PREFIX}pre {pre!r} is not known; {', '.join(_PRE_TOKENIZERS)} are")
    pattern, ignore_merges, adds_bos = _PRE_TOKENIZERS[pre]
    merges = parse_merges(_get_list(metadata, "merges", str))
    check_merges(merges, ordinary_tokens(vocab))
    return byte_level_tokenizer(
        vocab,
        unreachable_tokens(vocab, merges) if types is None else _of_type(vocab, types, _CONTROL, _UNKNOWN),
        {} if types is None else _of_type(vocab, types, _USER_DEFINED),
        merges=merges,
        ids=SpecialIds(
            _get(metadata, "bos_token_id", int, None),
            _eos_ids(metadata, None),
            _get(metadata, "add_bos_token", bool, adds_bos),
        ),
        pattern=pattern,
        ignore_merges=ignore_merges,
    )


def _sentencepiece(metadata: dict[str, Any], vocab: dict[str, int], types: list[int] | None) -> Tokenizer:
    scores = _get_list(metadata, "scores", float)
    if len(scores) != len(vocab):
        raise CheckpointError(f"has {len(scores)} scores for {len(vocab)} tokens")
    bos_id = _get(metadata, "bos_token_id", int, 1)
    eos_ids = _eos_ids(metadata, 2)
    if types is None:
        unknown_id = _get(metadata, "unknown_token_id", int, 0)
        controls = {unknown_id, bos_id, *eos_ids}
        types = [
            _CONTROL if index in controls else _BYTE if parse_byte_token(token.encode()) is not None else 1
            for token, index in vocab.items()
        ]
    byte_ids = {}
    for token, index in _of_type(vocab, types, _BYTE).items():
        byte = parse_byte_token(token.encode())
        if byte is None:
            raise CheckpointError(f"token {index}, {token!r}, is of the byte type but spells no byte")
        byte_ids[byte] = index
    return sentencepiece_tokenizer(
        [token.replace("▁", " ").encode() for token in vocab],
        scores,
        specials=_of_type(vocab, types, _CONTROL, _UNKNOWN),
        always=_of_type(vocab, types, _USER_DEFINED),
        byte_ids=byte_ids,
        unused=frozenset(_of_type(vocab, types, _UNUSED).values()),
        bos_id=bos_id,
        eos_ids=eos_ids,
        adds_bos=_get(metadata, "add_bos_token", bool, True),
        space_prefix=_get(metadata, "add_space_prefix", bool, True),
    )


def _of_type(vocab: dict[str, int], types: Sequence[int], *wanted: int) -> dict[str, int]:
    return {token: index for token, index in vocab.items() if types[index] in wanted}


def _eos_ids(metadata: dict[str, Any], default: int | None) -> tuple[int, ...]:
    """EOS, then the ends of a turn and of a message, where the file has them."""
    found = (
        _get(metadata, "eos_token_id", int, default),
        _get(metadata, "eot_token_id", int, None),
        _get(metadata, "eom_token_id", int, None),
    )
    return tuple(index for index in found if index is not None)


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
