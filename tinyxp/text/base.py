"""A tokenizer: a function from text to ids, the bytes of each id, and the ids with a meaning."""

from __future__ import annotations

import codecs
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import SupportsIndex

from tinyxp.errors import CheckpointError
from tinyxp.text.bpe import check_text

Encode = Callable[[str, bool], list[int]]


class Tokenizer:
    """Convert text to ids and back.

    ``encode(text, specials)`` returns ids without the BOS; ``tokens`` maps every id to its bytes. With
    ``adds_bos``, every encoding starts with ``bos_id``. With ``space_prefix``, ``encode`` puts a space before
    the text (SentencePiece), and ``decode`` removes it.
    """

    def __init__(
        self,
        encode: Encode,
        tokens: Mapping[int, bytes],
        *,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        adds_bos: bool = False,
        space_prefix: bool = False,
    ) -> None:
        self.bos_id = bos_id
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        self.adds_bos = adds_bos
        self.vocab_size = max(tokens, default=-1) + 1
        self.space_prefix = space_prefix
        self._encode = encode
        self._tokens = tokens
        for name, index in [("BOS", bos_id), *(("EOS", index) for index in self.eos_ids)]:
            if index is not None and index not in tokens:
                raise CheckpointError(f"the {name} id {index} is outside the vocabulary of {self.vocab_size}")
        if adds_bos and bos_id is None:
            raise CheckpointError("the tokenizer adds a BOS token but names none")

    def __repr__(self) -> str:
        return (
            f"Tokenizer(vocab_size={self.vocab_size}, bos_id={self.bos_id}, eos_ids={self.eos_ids}, "
            f"adds_bos={self.adds_bos})"
        )

    def encode(self, text: str, specials: bool = False) -> list[int]:
        """Return the ids of ``text``, after one BOS if the tokenizer adds one.

        Text that spells a special token is plain text unless ``specials``. Raises ValueError if ``text`` is
        not a str or has a lone surrogate.
        """
        check_text(text)
        ids = self._encode(text, specials)
        if self.adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Return the text of ``ids``, with special tokens spelled out and invalid UTF-8 as U+FFFD.

        What ``encode`` puts before a text is removed: a first BOS if the tokenizer adds one, and the space of
        ``space_prefix``. If the tokenizer adds a BOS and the ids begin without it, they continue an earlier
        text, and the space stays. Raises ValueError for an id outside the vocabulary.
        """
        stream = self.stream()
        try:
            pieces = [stream.push(index) for index in ids]
        except TypeError:
            raise ValueError(f"ids must be a sequence of integers, not {type(ids).__name__}") from None
        return "".join(pieces) + stream.flush()

    def stream(self) -> Stream:
        """Return a decoder that takes one id at a time."""
        return Stream(self)

    def token_bytes(self, index: SupportsIndex) -> bytes:
        """Return the bytes of one id; ValueError for an id outside the vocabulary."""
        try:
            number = operator.index(index)
        except TypeError:
            raise ValueError(f"an id must be one integer, not {index!r}") from None
        if number not in self._tokens:
            raise ValueError(f"id {number} is not in the vocabulary of {self.vocab_size} ids")
        return self._tokens[number]


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class Stream:
    """Decode ids one by one into whole characters. The pieces, joined, equal ``decode`` of all the ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = tokenizer.adds_bos
        self._drops_space = tokenizer.space_prefix and not tokenizer.adds_bos

    def push(self, index: SupportsIndex) -> str:
        """Return the characters that ``index`` completes, if any; ValueError for an unknown id."""
        data = self._tokenizer.token_bytes(index)
        if self._at_start:
            self._at_start = False
            if index == self._tokenizer.bos_id:
                self._drops_space = self._tokenizer.space_prefix
                return ""
        if self._drops_space:
            self._drops_space = False
            data = data.removeprefix(b" ")
        text, (pending, _) = self._utf8.decode(data), self._utf8.getstate()
        if _SURROGATE.fullmatch(pending):  # Python waits for a third byte, but no character begins so
            text += self._utf8.decode(b"", final=True)
        return text

    def flush(self) -> str:
        """Return U+FFFD if the ids ended inside a character, else nothing."""
        return self._utf8.decode(b"", final=True)


def special_splitter(specials: Mapping[str, int]) -> Callable[[str], Iterator[str | int]]:
    """Return a function that cuts text into plain pieces and the ids of special tokens, longest first."""
    spellings = sorted(filter(None, specials), key=len, reverse=True)

    @cache  # compiling a thousand spellings is slow, and most texts need none
    def pattern() -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, spellings)))

    def cut(text: str) -> Iterator[str | int]:
        end = 0
        for match in pattern().finditer(text) if spellings else ():
            if match.start() > end:
                yield text[end : match.start()]
            yield specials[match.group()]
            end = match.end()
        if end < len(text):
            yield text[end:]

    return cut


def add_specials(
    encode_plain: Callable[[str], list[int]],
    specials: Mapping[str, int],
    always: Mapping[str, int],
    *,
    prefix: str = "",
    added_bos: int | None = None,
) -> Encode:
    """Extend an encoder of plain text: find ``specials`` on request, and the tokens of ``always`` every time.

    ``prefix`` goes before a text that begins with plain text. A BOS that the text spells replaces the one
    that would be added, so plain text after it begins the text too.
    """
    cut_all, cut_always = special_splitter({**specials, **always}), special_splitter(always)

    def encode(text: str, find_specials: bool) -> list[int]:
        ids: list[int] = []
        for piece in (cut_all if find_specials else cut_always)(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                begins = not ids or ids == [added_bos]
                ids.extend(encode_plain(prefix + piece if begins else piece))
        return ids

    return encode


def check_vocabulary(vocab: object) -> dict[str, int]:
    """Return ``vocab`` if it maps tokens to distinct ids of 0 or more; else raise CheckpointError."""
    if not isinstance(vocab, dict) or not vocab:
        raise CheckpointError("has no vocabulary that maps tokens to ids")
    owner: dict[int, str] = {}
    for token, index in vocab.items():
        if type(index) is not int or index < 0:
            raise CheckpointError(f"the token {token!r} has the id {index!r}")
        if index in owner:
            raise CheckpointError(f"the id {index} belongs to both {owner[index]!r} and {token!r}")
        owner[index] = token
        try:
            token.encode()
        except UnicodeEncodeError:
            raise CheckpointError(f"the token {token!r} has a lone surrogate") from None
    return vocab
