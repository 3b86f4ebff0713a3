"""Tokenizers from the metadata of a GGUF file."""

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinyxp.errors import CheckpointError
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer, naming
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
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_ARRAY = 2**24  # values; the largest vocabularies have 2**18 tokens and a few times as many merges


def load_gguf(path: Path) -> Tokenizer:
    """The tokenizer in a GGUF file: byte-level BPE (`gpt2`) or SentencePiece's (`llama`).

    Control tokens are the specials; user-defined ones are found in every text, as llama.cpp does. Qwen 2's
    Hugging Face tokenizer composes characters (NFC) first, llama.cpp and this one do not. CheckpointError
    for a bad file, one without a vocabulary, and a tokenizer or pre-tokenizer that is not known.
    """
    with naming(path):
        metadata = read_metadata(path)
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
            raise CheckpointError(f"{len(types)} token types for {len(tokens)} tokens")
        if model == "gpt2":
            return _byte_level(metadata, vocab, types)
        return _sentencepiece(metadata, tokens, types)


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
        always={} if types is None else _of_type(vocab, types, _USER_DEFINED),
        merges=merges,
        ids=SpecialIds(
            _get(metadata, "bos_token_id", int, None),
            _eos_ids(metadata, None),
            _get(metadata, "add_bos_token", bool, adds_bos),
        ),
        pattern=pattern,
        ignore_merges=ignore_merges,
    )


def _sentencepiece(metadata: dict[str, Any], tokens: list[str], types: list[int] | None) -> Tokenizer:
    scores = _get_list(metadata, "scores", float)
    if len(scores) != len(tokens):
        raise CheckpointError(f"{len(scores)} scores for {len(tokens)} tokens")
    bos_id = _get(metadata, "bos_token_id", int, 1)
    eos_ids = _eos_ids(metadata, 2)
    if types is None:
        unknown_id = _get(metadata, "unknown_token_id", int, 0)
        controls = {unknown_id, bos_id, *eos_ids}
        types = [
            _CONTROL if index in controls else _BYTE if parse_byte_token(token.encode()) is not None else 1
            for index, token in enumerate(tokens)
        ]
    vocab = {token: index for index, token in enumerate(tokens)}
    byte_ids = {}
    for token, index in _of_type(vocab, types, _BYTE).items():
        byte = parse_byte_token(token.encode())
        if byte is None:
            raise CheckpointError(f"token {index}, {token!r}, is of the byte type but spells no byte")
        byte_ids[byte] = index
    return sentencepiece_tokenizer(
        [token.replace("▁", " ").encode() for token in tokens],
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


def read_metadata(path: Path) -> dict[str, Any]:
    """The key/value pairs at the head of a GGUF file, as str, int, float, bool and lists of them.

    gguf.GGUFReader makes arrays of every string and every tensor (seconds for a large vocabulary), and can
    be kept busy for ever by a length that the file does not have; here every length is held against the
    bytes that are left. Source: the GGUF specification, versions 2 and 3. CheckpointError for a bad file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).metadata()
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot be read: {error}") from None


class _Reader:
    """Reads values one after another from the head of a GGUF file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0
        self._order = "<"

    def metadata(self) -> dict[str, Any]:
        if self._data[:4] != b"GGUF":
            raise CheckpointError("not a GGUF file")
        self._offset = 4
        version = self._number("I")
        if version & 0xFFFF == 0:
            self._order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise CheckpointError(f"GGUF version {version}; 2 and 3 are read")
        self._number("Q")  # tensors
        metadata: dict[str, Any] = {}
        for _ in range(self._number("Q")):
            key = self._string()
            if key in metadata:
                raise CheckpointError(f"the key {key[:80]!r} stands twice")
            try:
                metadata[key] = self._value(self._number("I"))
            except CheckpointError as error:
                raise CheckpointError(f"{key[:80]!r}: {error}") from None
        return metadata

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind != _ARRAY:
            raise CheckpointError(f"value type {kind} is not known")
        kind, length = self._number("I"), self._number("Q")
        if length > _LONGEST_ARRAY:
            raise CheckpointError(f"an array of {length} values; {_LONGEST_ARRAY} at most are read")
        if kind == _STRING:
            return [self._string() for _ in range(length)]
        if kind not in _SCALARS:
            raise CheckpointError(f"an array of value type {kind} is not known")
        code = _SCALARS[kind]
        start = self._take(length * struct.calcsize(code))
        return list(struct.unpack_from(f"{self._order}{length}{code}", self._data, start))

    def _number(self, code: str) -> Any:
        start = self._take(struct.calcsize(code))
        return struct.unpack_from(self._order + code, self._data, start)[0]

    def _string(self) -> str:
        length = self._number("Q")
        start = self._take(length)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"a string at byte {start} is not UTF-8") from None

    def _take(self, size: int) -> int:
        """Moves on by `size` bytes, and says where they begin."""
        start = self._offset
        if size > len(self._data) - start:
            raise CheckpointError(
                f"{size} bytes are claimed at byte {start}, {len(self._data) - start} are left"
            )
        self._offset += size
        return start
