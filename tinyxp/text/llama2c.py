"""The tokenizer files of llama2.c: tokenizer.bin, tok512.bin and their like."""

from __future__ import annotations

import struct
from pathlib import Path

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, read_bytes
from tinyxp.text.base import Tokenizer
from tinyxp.text.sentencepiece import parse_byte_token, sentencepiece_tokenizer

_UNKNOWN_ID, _BOS_ID, _EOS_ID = 0, 1, 2


def load_llama2c(path: Path) -> Tokenizer:
    """Load the tokenizer as run.c does: a BOS always, then the text after one more space.

    The file is little-endian: the int32 length of the longest token, then for each token a float32 score, an
    int32 length and the bytes. The first three tokens are special; the newlines that the file has around
    them are not part of their spelling. A BOS ends a generation as an EOS does, as in run.c, because only a
    BOS separates the stories that the models were trained on. Raises CheckpointError for bad files.
    """
    with name_in_errors(path):
        pieces, scores = _parse(read_bytes(path))
        if len(pieces) <= _EOS_ID:
            raise CheckpointError(f"has {len(pieces)} tokens, fewer than the three special ones")
        bytes_of = {index: parse_byte_token(piece) for index, piece in enumerate(pieces)}
        return sentencepiece_tokenizer(
            pieces,
            scores,
            specials={_spelling(pieces[i], i).strip(): i for i in (_UNKNOWN_ID, _BOS_ID, _EOS_ID)},
            always={},
            byte_ids={byte: index for index, byte in bytes_of.items() if byte is not None},
            bos_id=_BOS_ID,
            eos_ids=(_EOS_ID, _BOS_ID),
            adds_bos=True,
            space_prefix=True,
        )


def _parse(data: bytes) -> tuple[list[bytes], list[float]]:
    if len(data) < 4:
        raise CheckpointError("is too short for a llama2.c tokenizer")
    (longest,) = struct.unpack_from("<i", data)
    pieces: list[bytes] = []
    scores: list[float] = []
    owner: dict[bytes, int] = {}
    offset = 4
    while offset < len(data):
        if offset + 8 > len(data):
            raise CheckpointError(f"ends inside the header of token {len(pieces)}")
        score, length = struct.unpack_from("<fi", data, offset)
        offset += 8
        if not 0 <= length <= longest:
            raise CheckpointError(
                f"token {len(pieces)} has length {length}, but the longest is {longest} by the header"
            )
        if offset + length > len(data):
            raise CheckpointError(
                f"token {len(pieces)} has length {length}, but {len(data) - offset} bytes are left"
            )
        piece = data[offset : offset + length]
        if piece in owner:
            raise CheckpointError(f"tokens {owner[piece]} and {len(pieces)} are both {piece!r}")
        owner[piece] = len(pieces)
        pieces.append(piece)
        scores.append(score)
        offset += length
    return pieces, scores


def _spelling(piece: bytes, index: int) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"the special token {index}, {piece!r}, is not UTF-8") from None
