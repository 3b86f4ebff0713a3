"""The vocabulary of a training run: one of its own, or what the corpus uses of a known one."""

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
    """A tokenizer, and what writes it into a folder."""

    tokenizer: Tokenizer
    write: Callable[[Path], None]


def own_vocabulary(text: str, size: int) -> Vocabulary:
    """Byte-pair encoding of ``size`` tokens, or as many as there are, trained on ``text``."""
    ranks = bpe.train(text, size).ranks
    plain = bpe.rank_encoder(ranks, bpe.GPT2_PATTERN)
    tokens = {index: token for token, index in ranks.items()}
    return Vocabulary(
        Tokenizer(add_specials(plain, {}, {}), tokens), partial(_write_ranks, ranks, bpe.GPT2_PATTERN)
    )


def known_vocabulary(name: str, text: str) -> Vocabulary:
    """What ``text`` uses of a tokenizer: a folder with its files, one of those, or an encoding of tiktoken.

    ValueError for a tokenizer whose files transformers does not read, or that is compact already.
    """
    whole = load_tokenizer(name)
    path = Path(name)
    if path.exists():
        source = path if path.is_dir() else path.parent
        if (source / COMPACT_NAME).is_file():
            raise ValueError(f"vocab is {name!r}, which is compact; name the whole tokenizer")
        found = [source / name for name in NAMES if (source / name).is_file()]
        if not found or path.suffix.lower() in (".gguf", ".bin", ".tiktoken"):
            raise ValueError(
                f"vocab is {name!r}; name a folder with a tokenizer.json, or vocab.json and merges.txt"
            )
        write = partial(_copy, found)
    elif name in ENCODINGS:
        specials = ENCODINGS[name].specials
        ids = set(range(whole.vocab_size)) - set(specials.values())
        ranks = {whole.token_bytes(i): i for i in sorted(ids) if _is_known(whole, i)}
        write = partial(_write_ranks, ranks, ENCODINGS[name].pattern)
    else:
        raise ValueError(f"vocab is {name!r}; download it and name its folder")
    used = collect_ids(whole.encode(text))

    def write_compact(where: Path) -> None:
        write(where)
        save_compact(used, where)

    return Vocabulary(compact_tokenizer(whole, used), write_compact)


def _is_known(tokenizer: Tokenizer, index: int) -> bool:
    """Whether there is a token of that id: cl100k_base has holes."""
    try:
        return bool(tokenizer.token_bytes(index))
    except ValueError:
        return False


def _write_ranks(ranks: dict[bytes, int], pattern: str, where: Path) -> None:
    save_tokenizer(ranks, where, pattern=pattern)


def _copy(files: list[Path], where: Path) -> None:
    """The files, and none that is left of another tokenizer."""
    with make_folder(where):
        for name in {*NAMES, COMPACT_NAME} - {file.name for file in files}:
            (where / name).unlink(missing_ok=True)
        for file in files:
            with file.open("rb") as old, replacing(where / file.name) as new:
                shutil.copyfileobj(old, new)
