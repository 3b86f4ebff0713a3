"""Loading a tokenizer from any kind of vocabulary file."""

from __future__ import annotations

import os
from pathlib import Path

from tinyxp.errors import CheckpointError
from tinyxp.files import exists
from tinyxp.formats import hub
from tinyxp.formats.bundled import find_bundled
from tinyxp.text.base import Stream, Tokenizer
from tinyxp.text.bytelevel import MERGES_NAMES, VOCABULARY_NAMES, find_pair, load_vocabulary_and_merges
from tinyxp.text.compact import COMPACT_NAME, load_compact
from tinyxp.text.gguf import load_gguf
from tinyxp.text.huggingface import is_like_gpt2, load_tokenizer_json
from tinyxp.text.llama2c import load_llama2c
from tinyxp.text.tiktoken import ENCODINGS, load_encoding, load_rank_file

__all__ = ["Stream", "Tokenizer", "load_tokenizer"]


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer at ``path``.

    - A folder: its tokenizer.json, else vocab.json (encoder.json) with merges.txt (vocab.bpe), else the one
      tokenizer.bin or tok*.bin of llama2.c. A compact.json in it renumbers the ids.
    - A file: a tokenizer.json, one of such a pair, a ``.gguf``, a llama2.c ``.bin``, a ``.tiktoken`` rank
      file.
    - A model's file without a tokenizer (a llama2.c ``.bin``, an ``.npz``): the tokenizer of its folder.
    - If no such path exists, a tiktoken encoding ("tiktoken:NAME", or gpt2, r50k_base, cl100k_base,
      o200k_base), the name of a bundled model, or a hub id "org/name".

    Raises CheckpointError, a ValueError, for a bad file and for a path without a tokenizer. Raises
    ImportError if ``tinyxp[hf]`` is needed: for tiktoken encodings, and for a tokenizer.json unless it is
    GPT-2's in all but the vocabulary and such a pair is beside it.
    """
    location = Path(path)
    if exists(location):
        return _load_folder(location) if location.is_dir() else _load_file(location)
    name = os.fspath(path)
    if name.startswith("tiktoken:"):
        return load_encoding(name.removeprefix("tiktoken:"))
    if name in ENCODINGS:
        return load_encoding(name)
    if (bundled := find_bundled(name)) is not None:
        return _load_folder(bundled)
    if hub.HUB_ID.fullmatch(name):
        return _load_folder(hub.fetch(name, hub.TOKENIZER_FILES))
    raise CheckpointError(f"{location}: no such file or folder, and no encoding ({', '.join(ENCODINGS)})")


def _load_folder(folder: Path) -> Tokenizer:
    tokenizer = _load_whole(folder)
    if exists(folder / COMPACT_NAME):
        return load_compact(folder / COMPACT_NAME, tokenizer)
    return tokenizer


def _load_whole(folder: Path) -> Tokenizer:
    path, pair = folder / "tokenizer.json", find_pair(folder)
    if path.is_file():
        try:
            return load_tokenizer_json(path)
        except ImportError:
            if pair is None or not is_like_gpt2(path):
                raise
    if pair:
        return load_vocabulary_and_merges(*pair)
    binaries = sorted(folder.glob("tok*.bin"))
    if len(binaries) > 1:
        names = ", ".join(binary.name for binary in binaries)
        raise CheckpointError(f"{folder}: has {names}; name the one to load")
    if binaries:
        return load_llama2c(binaries[0])
    raise CheckpointError(
        f"{folder}: has no tokenizer; looked for tokenizer.json, {' or '.join(VOCABULARY_NAMES)} with "
        f"{' or '.join(MERGES_NAMES)}, tokenizer.bin, tok*.bin; name the one to use (--tokenizer)"
    )


def _load_file(path: Path) -> Tokenizer:
    if path.name in (*VOCABULARY_NAMES, *MERGES_NAMES):
        pair = find_pair(path.parent)
        if pair is None:
            other = MERGES_NAMES if path.name in VOCABULARY_NAMES else VOCABULARY_NAMES
            raise CheckpointError(f"{path}: needs {' or '.join(other)} beside it")
        return load_vocabulary_and_merges(*pair)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _load_folder(path.parent)
    loaders = {
        ".json": load_tokenizer_json,
        ".gguf": load_gguf,
        ".bin": _load_bin,
        ".tiktoken": load_rank_file,
    }
    if suffix not in loaders:
        raise CheckpointError(f"{path}: {suffix or 'no suffix'} is not one of {', '.join(loaders)}")
    return loaders[suffix](path)


def _load_bin(path: Path) -> Tokenizer:
    try:
        return load_llama2c(path)
    except CheckpointError:
        if not any(path.parent.glob("tok*.bin")) or path.name.startswith("tok"):
            raise
        return _load_folder(path.parent)
