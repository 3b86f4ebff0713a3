"""A compact vocabulary: only the ids that a text uses, renumbered from 0."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import SupportsIndex

from tinyxp.checks import is_integer
from tinyxp.errors import CheckpointError
from tinyxp.files import make_folder, name_in_errors, read_json, replacing
from tinyxp.text.base import Tokenizer

COMPACT_NAME = "compact.json"


def collect_ids(ids: Iterable[SupportsIndex]) -> list[int]:
    """Return the distinct ids in order, the old id of each new one; ValueError if there are none."""
    used = sorted(set(map(operator.index, ids)))
    if not used:
        raise ValueError("ids is empty; a vocabulary needs at least one id")
    return used


def compact_tokenizer(tokenizer: Tokenizer, ids: Sequence[int]) -> Tokenizer:
    """Restrict ``tokenizer`` to ``ids``, renumbered from 0 in their order.

    Encoding a text that needs another piece raises ValueError naming the piece and its old id. A BOS or EOS
    that is not among ``ids`` is dropped. Raises CheckpointError if the tokenizer adds that BOS to every text,
    if ``ids`` are not strictly increasing integers, and if one is not in the vocabulary.
    """
    new = {old: index for index, old in enumerate(_check_ids(ids))}
    try:
        tokens = {index: tokenizer.token_bytes(old) for old, index in new.items()}
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if tokenizer.adds_bos and tokenizer.bos_id not in new:
        raise CheckpointError(f"ids lacks the BOS id {tokenizer.bos_id}, which begins every text")

    def encode(text: str, specials: bool) -> list[int]:
        old_ids = tokenizer.encode(text, specials)
        try:
            return [new[old] for old in old_ids]
        except KeyError as error:
            old = error.args[0]
            raise ValueError(
                f"the text needs {tokenizer.token_bytes(old)!r}, id {old}, which is not one of the "
                f"{len(new)} ids of the compact vocabulary"
            ) from None

    return Tokenizer(
        encode,
        tokens,
        bos_id=None if tokenizer.bos_id is None else new.get(tokenizer.bos_id),
        eos_ids=[new[old] for old in tokenizer.eos_ids if old in new],
        adds_bos=tokenizer.adds_bos,
        space_prefix=tokenizer.space_prefix,
    )


def save_compact(ids: Sequence[int], folder: str | os.PathLike[str]) -> None:
    """Write compact.json, which ``load_tokenizer(folder)`` applies to the whole tokenizer in that folder.

    Raises CheckpointError if ``ids`` are not strictly increasing integers.
    """
    content = json.dumps({"ids": _check_ids(ids)})
    path = Path(folder) / COMPACT_NAME
    with make_folder(path.parent), replacing(path) as file:
        file.write(content.encode())


def load_compact(path: Path, tokenizer: Tokenizer) -> Tokenizer:
    """Restrict ``tokenizer`` to the ids of a compact.json; CheckpointError for a file that does not fit."""
    content = read_json(path)
    with name_in_errors(path):
        if not isinstance(content.get("ids"), list):
            raise CheckpointError("has no list of ids")
        return compact_tokenizer(tokenizer, content["ids"])


def _check_ids(ids: Sequence[int]) -> list[int]:
    """Return ``ids`` as ints; CheckpointError unless they are integers of 0 or more that increase."""
    checked: list[int] = []
    for position, index in enumerate(ids):
        if not is_integer(index) or index < 0:
            raise CheckpointError(f"ids[{position}] is {index!r}; it must be an integer of 0 or more")
        if checked and index <= checked[-1]:
            raise CheckpointError(f"ids[{position}] is {index}, after {checked[-1]}; ids must increase")
        checked.append(operator.index(index))
    if not checked:
        raise CheckpointError("ids is empty; a vocabulary needs at least one id")
    return checked
