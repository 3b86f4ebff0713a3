"""The vocabulary of a training run: trained on its text, or the part of a known one that the text uses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tinyxp.files import make_folder, replacing
from tinyxp.formats.hub import TOKENIZER_FILES
from tinyxp.text import bpe
from tinyxp.text.base import Tokenizer, add_specials
from tinyxp.text.bytelevel import MERGES_NAMES, VOCABULARY_NAMES
from tinyxp.text.compact import COMPACT_NAME, collect_ids, compact_tokenizer, save_compact
from tinyxp.text.saving import save_tokenizer
from tinyxp.text.tiktoken import ENCODINGS
from tinyxp.text.tokenizer import load_tokenizer

NAMES = tuple(dict.fromkeys((*TOKENIZER_FILES, *MERGES_NAMES, *VOCABULARY_NAMES)))


class Vocabulary(NamedTuple):
    """A tokenizer, and a function that writes it into a folder."""

    tokenizer: Tokenizer
    write: Callable[[Path], None]


def train_vocabulary(text: str, size: int) -> Vocabulary:
    """Train byte-pair encoding on ``text``: ``size`` tokens, or fewer if the text has no more pairs."""
    ranks = bpe.train(text, size).ranks
    plain = bpe.rank_encoder(ranks, bpe.GPT2_PATTERN)
    tokens = {index: token for token, index in ranks.items()}
    return Vocabulary(
        Tokenizer(add_specials(plain, {}, {}), tokens), partial(_write_ranks, ranks, bpe.GPT2_PATTERN)
    )


def reduce_vocabulary(name: str, text: str) -> Vocabulary:
    """Return the part of a tokenizer that ``text`` uses. ``name`` is its folder, file or tiktoken encoding.

    Raise ValueError for a tokenizer whose files transformers does not read, or that is compact already.
    """
    whole = load_tokenizer(name)
    path = Path(name)
    if path.exists():
        source = path if path.is_dir() else path.parent
        if (source / COMPACT_NAME).is_file():
            raise ValueError(f"vocab is {name!r}, which is compact; name the whole tokenizer")
        files = [source / name for name in NAMES if (source / name).is_file()]
        if not files or path.suffix.lower() in (".gguf", ".bin", ".tiktoken"):
            raise ValueError(
                f"vocab is {name!r}; name a folder with a tokenizer.json, or vocab.json and merges.txt"
            )
        write = partial(_copy, files)
    elif name in ENCODINGS:
        specials = ENCODINGS[name].specials
        ids = set(range(whole.vocab_size)) - set(specials.values())
        ranks = {whole.token_bytes(i): i for i in sorted(ids) if _is_known(whole, i)}
        write = partial(_write_ranks, ranks, ENCODINGS[name].pattern)
    else:
        raise ValueError(f"vocab is {name!r}; download it and name its folder")
    used = collect_ids(whole.encode(text))

    def write_compact(folder: Path) -> None:
        write(folder)
        save_compact(used, folder)

    return Vocabulary(compact_tokenizer(whole, used), write_compact)


def _is_known(tokenizer: Tokenizer, index: int) -> bool:
    """Whether a token has that id: cl100k_base has gaps."""
    try:
        return bool(tokenizer.token_bytes(index))
    except ValueError:
        return False


def _write_ranks(ranks: dict[bytes, int], pattern: str, folder: Path) -> None:
    save_tokenizer(ranks, folder, pattern=pattern)


def _copy(files: list[Path], folder: Path) -> None:
    """Copy the files into the folder and delete those of another tokenizer there."""
    with make_folder(folder):
        for name in {*NAMES, COMPACT_NAME} - {file.name for file in files}:
            (folder / name).unlink(missing_ok=True)
        for file in files:
            with file.open("rb") as old, replacing(folder / file.name) as new:
                shutil.copyfileobj(old, new)
