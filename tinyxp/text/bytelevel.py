"""Byte-level tokenizers from GPT-2's two files: a vocabulary (vocab.json) and its merges (merges.txt)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tinyxp.errors import CheckpointError
from tinyxp.files import FILE_LIMIT, name_in_errors, read_bytes, read_json
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer, add_specials, check_vocabulary
from tinyxp.text.specials import SpecialIds, read_special_ids

VOCABULARY_NAMES = ("vocab.json", "encoder.json")
MERGES_NAMES = ("merges.txt", "vocab.bpe")

Merges = dict[tuple[bytes, bytes], int]


def load_vocabulary_and_merges(vocab_path: Path, merges_path: Path) -> Tokenizer:
    """Load the tokenizer of a vocab.json (encoder.json) and a merges.txt (vocab.bpe), with GPT-2's pattern.

    A token that is neither a byte nor the result of a merge is special, such as GPT-2's <|endoftext|>. BOS
    and EOS are those of a tokenizer_config.json in the folder, else <|endoftext|>. Raises CheckpointError for
    bad files.
    """
    content = read_json(vocab_path, FILE_LIMIT)
    with name_in_errors(vocab_path):
        vocab = check_vocabulary(content)
    with name_in_errors(merges_path):
        lines = str(read_bytes(merges_path), "utf-8").split("\n")
        start = 1 if lines[0].startswith("#version") else 0
        merges = parse_merges(line.removesuffix("\r") for line in lines[start:] if line.strip("\r"))
        check_merges(merges, spell_ordinary_tokens(vocab))
    specials, ids = find_unreachable_tokens(vocab, merges), read_special_ids(vocab_path.parent, vocab)
    with name_in_errors(vocab_path):
        return byte_level_tokenizer(vocab, specials, {}, merges=merges, ids=ids)


def byte_level_tokenizer(
    vocab: Mapping[str, int],
    specials: Mapping[str, int],
    always: Mapping[str, int],
    *,
    merges: Merges,
    ids: SpecialIds,
    pattern: str = bpe.GPT2_PATTERN,
    ignore_merges: bool = False,
) -> Tokenizer:
    """Build the tokenizer of a vocabulary in GPT-2's spelling.

    ``specials`` and ``always`` are spelled as they are. ``always`` is found in every text, ``specials`` in
    those that are encoded with specials.
    """
    raw = {**specials, **always}
    mergeable = spell_ordinary_tokens({token: index for token, index in vocab.items() if token not in raw})
    spelled = {index: token for token, index in mergeable.items()}
    tokens = {index: spelled.get(index, token.encode()) for token, index in vocab.items()}
    plain = bpe.merge_encoder(mergeable, merges, pattern, ignore_merges=ignore_merges)
    return Tokenizer(
        add_specials(plain, specials, always),
        tokens,
        bos_id=ids.bos_id,
        eos_ids=ids.eos_ids,
        adds_bos=bool(ids.adds_bos),
    )


def spell_ordinary_tokens(vocab: Mapping[str, int]) -> dict[bytes, int]:
    """Return the bytes of the tokens that GPT-2's table can spell, with their ids."""
    spelled = ((bpe.unspell_bytes(token), index) for token, index in vocab.items())
    return {token: index for token, index in spelled if token is not None}


def parse_merges(lines: Iterable[str]) -> Merges:
    """Rank pairs of tokens by their order, one pair a line with a space between; else CheckpointError."""
    merges: Merges = {}
    for rank, line in enumerate(lines):
        halves = [bpe.unspell_bytes(half) for half in line.split(" ")]
        if len(halves) != 2 or not halves[0] or not halves[1]:
            raise CheckpointError(f"merge {rank} is not two tokens: {line[:80]!r}")
        pair = (halves[0], halves[1])
        if pair in merges:
            raise CheckpointError(f"merge {rank}, {line!r}, repeats merge {merges[pair]}")
        merges[pair] = rank
    return merges


def check_merges(merges: Merges, vocab: Mapping[bytes, int]) -> None:
    """Raise CheckpointError if the halves or the result of a merge are not in the vocabulary."""
    for (left, right), rank in merges.items():
        for token in (left, right, left + right):
            if token not in vocab:
                raise CheckpointError(
                    f"merge {rank}, {left!r} and {right!r}: {token!r} is not in the vocabulary"
                )


def find_unreachable_tokens(vocab: Mapping[str, int], merges: Merges) -> dict[str, int]:
    """Return the tokens that no text encodes to: neither one byte nor the result of a merge."""
    reachable = {bpe.spell_bytes(left + right) for left, right in merges}
    reachable.update(bpe.byte_characters())
    return {token: index for token, index in vocab.items() if token not in reachable}


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the paths of the vocabulary and the merges in ``folder``, or None unless it has both."""
    vocab = next((folder / name for name in VOCABULARY_NAMES if (folder / name).is_file()), None)
    merges = next((folder / name for name in MERGES_NAMES if (folder / name).is_file()), None)
    return (vocab, merges) if vocab and merges else None
