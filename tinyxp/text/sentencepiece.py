"""SentencePiece's BPE, as Llama 2 uses it: merge characters by score, with bytes as a fallback."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tinyxp.errors import CheckpointError
from tinyxp.text.base import Tokenizer, add_specials
from tinyxp.text.bpe import ChunkEncoder, merge

_BYTE_TOKEN = re.compile(rb"<0x([0-9A-F]{2})>")
_WORDS = re.compile(r" *[^ ]+| +")


def parse_byte_token(token: bytes) -> int | None:
    """Return the byte that a token such as b"<0x0A>" spells; None for any other token."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


def sentencepiece_tokenizer(
    pieces: Sequence[bytes],
    scores: Sequence[float],
    *,
    specials: Mapping[str, int],
    always: Mapping[str, int],
    byte_ids: Mapping[int, int],
    unused: frozenset[int] = frozenset(),
    bos_id: int | None,
    eos_ids: Sequence[int],
    adds_bos: bool,
    space_prefix: bool,
) -> Tokenizer:
    """Build the tokenizer of scored ``pieces``, in which a space is a space.

    ``specials`` are found on request, ``always`` in every text. ``byte_ids`` maps a byte to its id.
    ``unused`` ids decode to a text, but no text encodes to them. With ``space_prefix``, a text begins with
    one more space. A character that is no piece becomes its bytes; encoding it raises ValueError if the
    vocabulary has none. Raises CheckpointError for a score that is not a number. Source: Kudo and Richardson
    2018; run.c of llama2.c.
    """
    apart = {*specials.values(), *always.values(), *byte_ids.values(), *unused}
    vocab: dict[bytes, int] = {}
    for index, (piece, score) in enumerate(zip(pieces, scores, strict=True)):
        if score != score:
            raise CheckpointError(f"the score of token {index} is not a number")
        if index not in apart and piece:
            vocab.setdefault(piece, index)

    def rank(left: bytes, right: bytes) -> float | None:
        index = vocab.get(left + right)
        return None if index is None else -scores[index]

    def encode_chunk(chunk: str) -> list[int]:
        ids: list[int] = []
        for part in merge([character.encode() for character in chunk], rank):
            if part in vocab:
                ids.append(vocab[part])
            elif all(byte in byte_ids for byte in part):
                ids.extend(byte_ids[byte] for byte in part)
            else:
                raise ValueError(f"{part.decode()!r} has no token, and the vocabulary no bytes for it")
        return ids

    # If no piece has a space after another character, nothing is merged across the start of a word.
    words_apart = not any(re.search(rb"[^ ] ", piece) for piece in vocab)
    plain = ChunkEncoder(_WORDS.findall if words_apart else lambda text: [text], encode_chunk)

    tokens = dict(enumerate(pieces))
    tokens.update({index: bytes([byte]) for byte, index in byte_ids.items()})
    tokens.update({index: spelling.encode() for spelling, index in [*specials.items(), *always.items()]})
    return Tokenizer(
        add_specials(
            plain,
            specials,
            always,
            prefix=" " if space_prefix else "",
            added_bos=bos_id if adds_bos else None,
        ),
        tokens,
        bos_id=bos_id,
        eos_ids=eos_ids,
        adds_bos=adds_bos,
        space_prefix=space_prefix,
    )
