"""Corpora: known texts, fetched once and checked, and any text file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import exists, make_folder, name_in_errors, read_bytes, replacing
from tinyxp.text.download import LENGTH_LIMIT, Show, download


class Corpus(NamedTuple):
    """A text on the net: sha256 is that of the cleaned text in UTF-8, `characters` its length."""

    name: str
    title: str
    url: str
    clean: Callable[[str], str]
    characters: int
    sha256: str

    def path(self) -> Path:
        """Where its cleaned text is kept, once it is fetched."""
        return cache_folder() / f"{self.name}.txt"


def clean_gutenberg(text: str) -> str:
    """The book without Project Gutenberg's frame and marks: one line a paragraph, an empty one between.

    What stands between the lines *** START and *** END, without `_`. CheckpointError without those lines.
    """
    found = re.search(r"^\s*\*\*\* START.*?\n(.*?)^\s*\*\*\* END", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise CheckpointError(
            "has no lines *** START and *** END around a text, as Project Gutenberg's files do"
        )
    paragraphs = re.split(r"\n\s*\n", found[1].replace("_", ""))
    joined = (" ".join(line.strip() for line in part.strip().split("\n")) for part in paragraphs)
    return "\n\n".join(filter(None, joined))


CORPORA = {
    corpus.name: corpus
    for corpus in [
        Corpus(
            "sherlock",
            "Arthur Conan Doyle, The Adventures of Sherlock Holmes (Project Gutenberg eBook 1661)",
            "https://www.gutenberg.org/cache/epub/1661/pg1661.txt",
            clean_gutenberg,
            561_653,
            "84a2388f58c4ac4a5eef76b03e91ad7dc087bef408788a6ca8fbbd9bb8fd922c",
        )
    ]
}


def cache_folder() -> Path:
    """TINYXP_CACHE, else tinyxp in XDG_CACHE_HOME, else ~/.cache/tinyxp."""
    if named := os.environ.get("TINYXP_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyxp"


def read_corpus(name_or_path: str | os.PathLike[str]) -> str:
    """The text of a corpus that is fetched, or of any UTF-8 file; the file is `./NAME` where a corpus has
    its name. A byte order mark is dropped, and lines end in `\\n`.

    CheckpointError for a corpus that is not fetched or has been changed, and for what is no text.
    """
    corpus = CORPORA.get(os.fspath(name_or_path))
    if corpus is not None:
        return _read(corpus)
    path = Path(name_or_path)
    if not exists(path):
        raise CheckpointError(f"{path}: no such file, and no corpus ({', '.join(CORPORA)})")
    with name_in_errors(path):
        return decode_text(read_bytes(path))


def decode_text(data: bytes) -> str:
    """UTF-8 bytes as a text without a byte order mark, lines ending in `\\n`.

    CheckpointError for bytes that are no text.
    """
    if (zero := data.find(b"\0")) >= 0:
        raise CheckpointError(f"is not a text: it has a NUL byte at offset {zero}")
    try:
        text = data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}, {error.reason}"
        ) from None
    if not text:
        raise CheckpointError("is empty")
    return text


def fetch(corpus: Corpus, *, source: str | os.PathLike[str] | None = None, show: Show | None = None) -> Path:
    """Puts the cleaned text into the cache, from the net or from `source`, a copy of the file there.

    A text that is there already stays as it is. A download that was cut off goes on from its `.part` file,
    which is removed where it is not the corpus. `show(done, total)` counts bytes. CheckpointError for a file
    that is not the corpus; OSError where it cannot be had.
    """
    if is_fetched(corpus):
        return corpus.path()
    part = corpus.path().with_suffix(".part")
    with make_folder(part.parent):
        if source is not None:
            with name_in_errors(Path(source)):
                _keep(corpus, read_bytes(Path(source), LENGTH_LIMIT))
        else:
            download(corpus.url, part, show=show)
            try:
                _keep(corpus, part.read_bytes())
            except CheckpointError as error:
                part.unlink()
                raise CheckpointError(f"{corpus.url}: {error}") from None
            part.unlink()
    return corpus.path()


def is_fetched(corpus: Corpus) -> bool:
    """Whether the cache holds the text as it should be."""
    try:
        _read(corpus)
    except CheckpointError:
        return False
    return True


def _read(corpus: Corpus) -> str:
    path = corpus.path()
    if not exists(path):
        raise CheckpointError(f"{corpus.name} is not here yet: tinyxp data get {corpus.name}")
    with name_in_errors(path):
        return _checked(corpus, decode_text(read_bytes(path, LENGTH_LIMIT)))


def _keep(corpus: Corpus, raw: bytes) -> None:
    text = _checked(corpus, corpus.clean(decode_text(raw)))
    with replacing(corpus.path()) as file:
        file.write(text.encode())


def _checked(corpus: Corpus, text: str) -> str:
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != corpus.sha256:
        raise CheckpointError(
            f"is not {corpus.name}: its text has {len(text):,} characters and the sha256 {found}; "
            f"{corpus.characters:,} and {corpus.sha256} are wanted"
        )
    return text
