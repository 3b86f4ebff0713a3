"""Corpora: known texts, which are fetched once and checked, and any text file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tinyxp.errors import CheckpointError
from tinyxp.files import exists, make_folder, name_in_errors, read_bytes, replacing
from tinyxp.text.downloads import LENGTH_LIMIT, Show, download


class Corpus(NamedTuple):
    """A text on the internet."""

    name: str
    title: str
    url: str
    clean: Callable[[str], str]
    characters: int
    """The length of the cleaned text."""
    sha256: str
    """Of the cleaned text in UTF-8."""

    def path(self) -> Path:
        """Return the file in the cache for its cleaned text."""
        return cache_folder() / f"{self.name}.txt"


def clean_gutenberg(text: str) -> str:
    """Return a Project Gutenberg book without its frame: one line a paragraph, with empty lines between.

    Keeps the text between the lines *** START and *** END, without ``_``. Raises CheckpointError if the text
    lacks those lines.
    """
    match = re.search(r"^\s*\*\*\* START.*?\n(.*?)^\s*\*\*\* END", text, re.DOTALL | re.MULTILINE)
    if match is None:
        raise CheckpointError(
            "has no lines *** START and *** END around a text, as Project Gutenberg's files do"
        )
    paragraphs = re.split(r"\n\s*\n", match[1].replace("_", ""))
    lines = (" ".join(line.strip() for line in part.strip().split("\n")) for part in paragraphs)
    return "\n\n".join(filter(None, lines))


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
    """Return TINYXP_CACHE, or else tinyxp in XDG_CACHE_HOME, or else ~/.cache/tinyxp."""
    if path := os.environ.get("TINYXP_CACHE"):
        return Path(path)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyxp"


def read_corpus(name_or_path: str | os.PathLike[str]) -> str:
    """Read a corpus that has been fetched, or any UTF-8 file.

    A file with the name of a corpus is read as ``./NAME``. A byte order mark is dropped, and lines end in
    ``\\n``. Raises CheckpointError for a corpus that is not fetched or has changed, and for anything but
    text.
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
    """Decode UTF-8 without a byte order mark, lines ending in ``\\n``; CheckpointError if it is no text."""
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
    """Write the cleaned text into the cache, from its URL or from ``source``, a copy of that file.

    A text that is in the cache already stays. An interrupted download resumes from its ``.part`` file, which
    is deleted if it is not the corpus. ``show(done, total)`` counts bytes. Raises CheckpointError for a file
    that is not the corpus, OSError if the download fails.
    """
    if is_fetched(corpus):
        return corpus.path()
    part = corpus.path().with_suffix(".part")
    with make_folder(part.parent):
        if source is not None:
            with name_in_errors(Path(source)):
                _store(corpus, read_bytes(Path(source), LENGTH_LIMIT))
        else:
            download(corpus.url, part, show=show)
            try:
                _store(corpus, part.read_bytes())
            except CheckpointError as error:
                part.unlink()
                raise CheckpointError(f"{corpus.url}: {error}") from None
            part.unlink()
    return corpus.path()


def is_fetched(corpus: Corpus) -> bool:
    """Return whether the cache holds the text unchanged."""
    try:
        _read(corpus)
    except CheckpointError:
        return False
    return True


def _read(corpus: Corpus) -> str:
    path = corpus.path()
    if not exists(path):
        raise CheckpointError(f"{corpus.name} is not fetched yet: tinyxp data get {corpus.name}")
    with name_in_errors(path):
        return _check(corpus, decode_text(read_bytes(path, LENGTH_LIMIT)))


def _store(corpus: Corpus, raw: bytes) -> None:
    text = _check(corpus, corpus.clean(decode_text(raw)))
    with replacing(corpus.path()) as file:
        file.write(text.encode())


def _check(corpus: Corpus, text: str) -> str:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    if sha256 != corpus.sha256:
        raise CheckpointError(
            f"is not {corpus.name}: its text has {len(text):,} characters and the sha256 {sha256}; "
            f"expected {corpus.characters:,} and {corpus.sha256}"
        )
    return text
