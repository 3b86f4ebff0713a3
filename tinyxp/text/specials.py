"""The ids that begin and end a text, from the files beside a Hugging Face vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import name_in_errors, read_json

END_OF_TEXT = "<|endoftext|>"


class SpecialIds(NamedTuple):
    """The ids with a meaning; None if the files do not say."""

    bos_id: int | None
    eos_ids: tuple[int, ...]
    """The ids that end a generation."""
    adds_bos: bool | None = None
    """Whether encoding puts a BOS before a text."""


def read_special_ids(folder: Path, vocab: Mapping[str, int]) -> SpecialIds:
    """Read BOS and EOS from tokenizer_config.json, and further EOS from generation_config.json.

    Without a tokenizer_config.json, GPT-2's <|endoftext|> is both, if ``vocab`` has it. Raises
    CheckpointError if the files name a token that is not in ``vocab``.
    """
    path = folder / "tokenizer_config.json"
    if path.is_file():
        ids = _read_tokenizer_config(path, vocab)
    else:
        end = vocab.get(END_OF_TEXT)
        ids = SpecialIds(end, () if end is None else (end,))
    path = folder / "generation_config.json"
    if path.is_file():
        ids = ids._replace(eos_ids=(*ids.eos_ids, *_read_generation_config(path, vocab)))
    return ids


def _read_tokenizer_config(path: Path, vocab: Mapping[str, int]) -> SpecialIds:
    config = read_json(path)
    with name_in_errors(path):
        bos_id, eos_id = _token_id(config, "bos_token", vocab), _token_id(config, "eos_token", vocab)
        adds_bos = config.get("add_bos_token")
        if adds_bos is not None and not isinstance(adds_bos, bool):
            raise CheckpointError(f"add_bos_token is {adds_bos!r}; it must be true or false")
    return SpecialIds(bos_id, () if eos_id is None else (eos_id,), adds_bos)


def _read_generation_config(path: Path, vocab: Mapping[str, int]) -> list[int]:
    value = read_json(path).get("eos_token_id")
    eos_ids = value if isinstance(value, list) else [] if value is None else [value]
    known = set(vocab.values())
    with name_in_errors(path):
        for index in eos_ids:
            if type(index) is not int or index not in known:
                raise CheckpointError(f"eos_token_id {index!r} is not in the vocabulary")
    return eos_ids


def _token_id(config: Mapping[str, object], key: str, vocab: Mapping[str, int]) -> int | None:
    token = config.get(key)
    if isinstance(token, dict):
        token = token.get("content")
    if token is None:
        return None
    if not isinstance(token, str) or token not in vocab:
        raise CheckpointError(f"{key} {token!r} is not in the vocabulary")
    return vocab[token]
