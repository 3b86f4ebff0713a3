"""Hugging Face's tokenizer.json, through the ``tokenizers`` library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, parse_json, read_bytes
from tinyxp.text import bpe
from tinyxp.text.base import Encode, Tokenizer, check_vocabulary
from tinyxp.text.sentencepiece import parse_byte_token
from tinyxp.text.specials import read_special_ids

if TYPE_CHECKING:
    import tokenizers

_SENTENCEPIECE_DECODERS = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


def load_tokenizer_json(path: Path) -> Tokenizer:
    """Load a tokenizer.json, with the tokenizer_config.json and generation_config.json beside it.

    A BOS is added if add_bos_token says so, or, if it says nothing, if the file's post-processor adds one.
    Added tokens that are not special are found in every text, as in ``tokenizers``. Decoding is exact unless
    the file's normalizer loses information: composed characters (NFC) and lowered case stay. Raises
    CheckpointError for a bad file or a decoder other than ByteLevel or SentencePiece's, and ImportError
    without ``tokenizers``.
    """
    try:
        import tokenizers
    except ImportError:
        raise ImportError(f"{path} needs tokenizers: pip install 'tinyxp[hf]'") from None
    with name_in_errors(path):
        content = read_bytes(path)
        parsed = parse_json(content)
        _check_model(parsed)
        with _failures_as(CheckpointError, "tokenizers rejects it"):
            library = tokenizers.Tokenizer.from_buffer(content)
        library.no_truncation()
        library.no_padding()
        vocab = check_vocabulary(library.get_vocab(with_added_tokens=True))
        added = {index: token.content for index, token in library.get_added_tokens_decoder().items()}
        _check_added_tokens(parsed, added)
        # A file without a decoder is decoded by its pre-tokenizer.
        decoders = list(_members(_state(library.decoder), "decoders"))
        decoders = decoders or list(_members(_state(library.pre_tokenizer), "pretokenizers"))
        tokens = _token_bytes(vocab, added, decoders)
        first_id = _first_id(_state(library.post_processor))
    ids = read_special_ids(path.parent, vocab)
    with name_in_errors(path):
        return Tokenizer(
            _encoder(library, _missing_bytes(vocab, parsed["model"], decoders)),
            tokens,
            bos_id=ids.bos_id if first_id is None else first_id,
            eos_ids=ids.eos_ids,
            adds_bos=first_id is not None if ids.adds_bos is None else ids.adds_bos,
            space_prefix=_takes_space(decoders),
        )


def _check_model(parsed: dict[str, Any]) -> None:
    model = parsed.get("model")
    if not isinstance(model, dict):
        raise CheckpointError("is not a tokenizer.json: it has no model")
    if isinstance(model.get("vocab"), dict):
        check_vocabulary(model["vocab"])


def _check_added_tokens(parsed: dict[str, Any], added: dict[int, str]) -> None:
    """Raise CheckpointError for a token whose id is not the next free one: the library changes it."""
    for token in parsed.get("added_tokens", ()):
        if added.get(token["id"]) != token["content"]:
            raise CheckpointError(f"the added token {token['content']!r} cannot have the id {token['id']}")


def is_like_gpt2(path: Path) -> bool:
    """Return whether a tokenizer.json says no more than GPT-2's vocab.json and merges.txt can.

    Folders of other families have such a pair too, but another pattern cuts their text into chunks. Raises
    CheckpointError for a bad file.
    """
    with name_in_errors(path):
        parsed = parse_json(read_bytes(path))
        try:
            model, splitter, after = parsed["model"], parsed["pre_tokenizer"], parsed.get("post_processor")
            return (
                parsed.get("normalizer") is None
                and (after is None or after["type"] == "ByteLevel")
                and splitter["type"] == "ByteLevel"
                and splitter.get("use_regex", True)
                and not splitter["add_prefix_space"]
                and not model.get("ignore_merges", False)
                and all(token["content"] in model["vocab"] for token in parsed.get("added_tokens", ()))
            )
        except (AttributeError, KeyError, TypeError):
            return False


@contextmanager
def _failures_as(kind: type[ValueError], message: str) -> Iterator[None]:
    """Turn what ``tokenizers`` raises, a bare Exception or a panic of its Rust code, into ``kind``."""
    try:
        yield
    except BaseException as error:
        # A panic is not an Exception, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise kind(f"{message}: {error}") from None


def _encoder(library: tokenizers.Tokenizer, missing: frozenset[int]) -> Encode:
    lock = Lock()  # the treatment of special tokens is a setting of the tokenizer, not of a call

    def encode(text: str, find_specials: bool) -> list[int]:
        lost = missing.intersection(text.encode()) if missing else None
        if lost:
            raise ValueError(f"the byte {min(lost):#04x} of {text[:40]!r} has no token")
        with lock, _failures_as(ValueError, "tokenizers cannot encode the text"):
            library.encode_special_tokens = not find_specials
            ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def _missing_bytes(
    vocab: dict[str, int], model: dict[str, Any], decoders: list[dict[str, Any]]
) -> frozenset[int]:
    """Return the bytes that ``tokenizers`` would silently drop: no token spells them, not even unk."""
    if model.get("unk_token") is not None or not any(part["type"] == "ByteLevel" for part in decoders):
        return frozenset()
    return frozenset(byte for byte, character in enumerate(bpe.byte_characters()) if character not in vocab)


def _first_id(post_processor: Any) -> int | None:
    """Return the id that the post-processor puts before a text; None if it puts none."""
    first: list[int] = []
    for part in _members(post_processor, "processors"):
        if part["type"] == "TemplateProcessing":
            pieces = takewhile(lambda piece: "SpecialToken" in piece, part["single"])
            names = [piece["SpecialToken"]["id"] for piece in pieces]
            unknown = [name for name in names if name not in part["special_tokens"]]
            if unknown:
                raise CheckpointError(f"its post-processor does not define {unknown[0]!r}")
            first = [*(index for name in names for index in part["special_tokens"][name]["ids"]), *first]
        elif part["type"] in ("BertProcessing", "RobertaProcessing"):
            first = [part["cls"][1], *first]
    if len(first) > 1:
        raise CheckpointError(f"its post-processor puts {first} before a text; one BOS at most is known")
    return first[0] if first else None


def _state(component: Any) -> Any:
    """Return a component of a tokenizer as the library writes it, whatever older form it has read."""
    return None if component is None else json.loads(component.__getstate__())


def _members(part: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield the members of a component that may be a Sequence, and of Sequences inside it."""
    if part is None:
        return
    if part["type"] == "Sequence":
        for member in part[key]:
            yield from _members(member, key)
    else:
        yield part


def _token_bytes(
    vocab: dict[str, int], added: dict[int, str], decoders: list[dict[str, Any]]
) -> dict[int, bytes]:
    kinds = {part["type"] for part in decoders}
    if "ByteLevel" in kinds:
        spelled = {index: bpe.unspell_bytes(token) for token, index in vocab.items()}
        tokens = {index: token.encode() for token, index in vocab.items()}
        tokens.update({index: data for index, data in spelled.items() if data is not None})
    elif kinds and kinds <= _SENTENCEPIECE_DECODERS:
        tokens = {index: token.replace("▁", " ").encode() for token, index in vocab.items()}
        if "ByteFallback" in kinds:
            bytes_of = {index: parse_byte_token(token) for index, token in tokens.items()}
            tokens.update({index: bytes([byte]) for index, byte in bytes_of.items() if byte is not None})
    else:
        named = ", ".join(sorted(kinds)) or "none"
        raise CheckpointError(f"its decoder is {named}; ByteLevel and SentencePiece's (Metaspace) are known")
    tokens.update({index: content.encode() for index, content in added.items()})
    return tokens


def _takes_space(decoders: list[dict[str, Any]]) -> bool:
    """Return whether the decoder removes a space from the start of a text."""
    for part in decoders:
        if part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never":
            return True
        if part["type"] == "Strip" and part.get("start", 0) > 0:
            return True
    return False
