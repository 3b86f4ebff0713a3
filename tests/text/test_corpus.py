"""Corpora: cleaning, the cache, fetching, and files that are no text."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinyxp.errors import CheckpointError
from tinyxp.text import corpus as module
from tinyxp.text.corpus import CORPORA, Corpus, clean_gutenberg, fetch, is_fetched, read_corpus

from .server import Served, serving

FRAMED = (
    "\ufeffThe Project Gutenberg eBook\r\n\r\nTitle: A *** START\r\n"
    "*** START OF THE PROJECT GUTENBERG EBOOK ***\r\n\r\n\r\n"
    "A TITLE\r\n\r\n   One _line_,\r\n  and another.  \r\n \r\n\r\nThe é end.\r\n\r\n"
    "   *** END OF THE PROJECT GUTENBERG EBOOK ***\r\nlicence\r\n"
)
CLEAN = "A TITLE\n\nOne line, and another.\n\nThe é end."


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYXP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(FRAMED.encode()) as served:
        yield served


@pytest.fixture
def tale(served: Served, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus of three paragraphs, which the server has."""
    sha256 = hashlib.sha256(CLEAN.encode()).hexdigest()
    made = Corpus("tale", "A tale", served.url, clean_gutenberg, len(CLEAN), sha256)
    monkeypatch.setitem(CORPORA, "tale", made)
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_fetch_and_read(tale: Corpus, served: Served, cache: Path) -> None:
    with pytest.raises(CheckpointError, match="tale is not fetched yet: tinyxp data get tale"):
        read_corpus("tale")
    assert fetch(tale) == cache / "tale.txt"
    assert (cache / "tale.txt").read_bytes() == CLEAN.encode()
    assert read_corpus("tale") == CLEAN
    assert names(cache) == ["tale.txt"]
    fetch(tale)
    assert served.asked == [None]  # once


def test_a_download_goes_on(tale: Corpus, served: Served, cache: Path) -> None:
    served.cut_at = 50
    with pytest.raises(ConnectionError, match="50 bytes are kept"):
        fetch(tale)
    assert names(cache) == ["tale.part"]
    served.cut_at = None
    fetch(tale)
    assert (read_corpus("tale"), names(cache)) == (CLEAN, ["tale.txt"])
    assert served.asked == [None, "bytes=50-"]


def test_an_interruption_leaves_the_part(tale: Corpus, served: Served, cache: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(tale, show=interrupt)
    assert (cache / "tale.part").read_bytes() == FRAMED.encode()
    fetch(tale)
    assert (read_corpus("tale"), served.asked[1:]) == (CLEAN, [f"bytes={len(FRAMED.encode())}-"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            FRAMED.replace("One", "Two").encode(),
            r"is not tale: its text has 43 characters",
        ),
        (b"<html>not here</html>", r"has no lines \*\*\* START and \*\*\* END"),
        (b"\x1f\x8b\x08\x00", "is not a text: it has a NUL byte at offset 3"),
        (b"", "is empty"),
    ],
)
def test_another_text_is_rejected(
    tale: Corpus, served: Served, cache: Path, content: bytes, message: str
) -> None:
    served.content = content
    with pytest.raises(CheckpointError, match=rf"^http://.*/book\.txt: {message}"):
        fetch(tale)
    assert names(cache) == []


def test_a_broken_part_is_fetched_anew_at_the_second_try(tale: Corpus, cache: Path) -> None:
    cache.mkdir()
    (cache / "tale.part").write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match=r"/book\.txt: "):
        fetch(tale)
    fetch(tale)
    assert read_corpus("tale") == CLEAN


def test_a_server_that_rejects_leaves_nothing(tale: Corpus, served: Served, cache: Path) -> None:
    served.status = 404
    with pytest.raises(ConnectionError, match="the server answers 404 Not Found"):
        fetch(tale)
    assert not cache.exists()


def test_a_copy_is_taken_instead(tale: Corpus, served: Served, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.txt").write_text(FRAMED, "utf-8", newline="")
    fetch(tale, source=tmp_path / "copy.txt")
    assert (read_corpus("tale"), served.asked) == (CLEAN, [])
    assert (tmp_path / "copy.txt").exists()


def test_a_copy_that_is_another_text(tale: Corpus, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.txt").write_text(FRAMED.replace("One", "Three"), "utf-8")
    with pytest.raises(CheckpointError, match=r"copy\.txt: is not tale: its text has 45 characters and the"):
        fetch(tale, source=tmp_path / "copy.txt")
    with pytest.raises(CheckpointError, match=r"none\.txt: cannot be read: No such file"):
        fetch(tale, source=tmp_path / "none.txt")
    assert not cache.exists()


def test_a_text_that_was_changed_is_rejected_and_fetched_again(
    tale: Corpus, served: Served, cache: Path
) -> None:
    fetch(tale)
    (cache / "tale.txt").write_text("A TITLE")
    assert not is_fetched(tale)
    with pytest.raises(CheckpointError, match=r"tale\.txt: is not tale: its text has 7 characters"):
        read_corpus("tale")
    fetch(tale)
    assert read_corpus("tale") == CLEAN


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"TINYXP_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"TINYXP_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/tinyxp"),
        ({"TINYXP_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/someone/.cache/tinyxp"),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": "/home/someone", **variables}.items():
        monkeypatch.setenv(name, value)
    assert module.cache_folder() == Path(folder)


def test_clean_gutenberg() -> None:
    assert clean_gutenberg(FRAMED.removeprefix("\ufeff").replace("\r\n", "\n")) == CLEAN
    with pytest.raises(CheckpointError, match=r"has no lines \*\*\* START"):
        clean_gutenberg("*** START\nonly")


def test_sherlock(test_data: Path) -> None:
    sherlock = CORPORA["sherlock"]
    fetch(sherlock, source=test_data / "books" / "pg1661_raw.txt")
    text = read_corpus("sherlock")
    assert len(text) == sherlock.characters == 561_653
    sha256 = "84a2388f58c4ac4a5eef76b03e91ad7dc087bef408788a6ca8fbbd9bb8fd922c"
    assert hashlib.sha256(text.encode()).hexdigest() == sha256


def test_any_file(tmp_path: Path) -> None:
    path = tmp_path / "tale"
    path.write_bytes("\ufeffé\r\nb\rc\n\ufeff".encode())
    assert read_corpus(path) == read_corpus(str(path)) == "é\nb\rc\n\ufeff"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"ab\0c", "is not a text: it has a NUL byte at offset 2"),
        (b"abc\xff\xfe", "is not UTF-8: byte 0xff at offset 3, invalid start byte"),
        (b"abcde\xc3", "is not UTF-8: byte 0xc3 at offset 5, unexpected end of data"),
    ],
)
def test_files_that_are_no_text(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"a\.txt: {message}$"):
        read_corpus(path)


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
        read_corpus(tmp_path)
    with pytest.raises(CheckpointError, match=r"no\.txt: no such file, and no corpus \(sherlock\)"):
        read_corpus(tmp_path / "no.txt")


def test_no_server(tale: Corpus) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = tale._replace(url=f"http://127.0.0.1:{unused.getsockname()[1]}/book.txt")
        with pytest.raises(ConnectionError, match="refused"):
            fetch(gone)
