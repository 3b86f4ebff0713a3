"""Downloads from a server on this machine that can misbehave."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinyxp.errors import CheckpointError
from tinyxp.text import downloads as module
from tinyxp.text.downloads import download

from .server import Served, serving

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(CONTENT) as served:
        yield served


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "book.part"


def test_whole(served: Served, part: Path) -> None:
    seen: list[tuple[int, int]] = []
    download(served.url, part, show=lambda done, total: seen.append((done, total)))
    assert part.read_bytes() == CONTENT
    assert served.asked == [None]
    assert seen[-1] == (256_000, 256_000)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_what_is_cut_off_goes_on(served: Served, part: Path) -> None:
    served.cut_at = 100_000
    with pytest.raises(
        ConnectionError, match=r"/book\.txt: .*; 100,000 bytes are kept, and the next try resumes"
    ):
        download(served.url, part)
    assert part.read_bytes() == CONTENT[:100_000]
    served.cut_at = None
    seen: list[tuple[int, int]] = []
    download(served.url, part, show=lambda done, total: seen.append((done, total)))
    assert part.read_bytes() == CONTENT
    assert served.asked == [None, "bytes=100000-"]
    assert (seen[0][0] > 100_000, seen[-1]) == (True, (256_000, 256_000))


def test_a_server_without_ranges_starts_again(served: Served, part: Path) -> None:
    part.write_bytes(b"x" * 5000)
    served.ranges = False
    download(served.url, part)
    assert part.read_bytes() == CONTENT
    assert served.asked == ["bytes=5000-"]


def test_a_range_that_was_not_asked_for_starts_again(served: Served, part: Path) -> None:
    part.write_bytes(CONTENT[:5000])
    served.wrong_range = True
    download(served.url, part)
    assert part.read_bytes() == CONTENT
    assert served.asked == ["bytes=5000-", None]


def test_what_is_whole_already_is_not_asked_for_twice(served: Served, part: Path) -> None:
    part.write_bytes(CONTENT)
    download(served.url, part)
    assert part.read_bytes() == CONTENT
    assert served.asked == ["bytes=256000-"]


def test_what_is_too_long_starts_again(served: Served, part: Path) -> None:
    part.write_bytes(CONTENT + b"x")
    download(served.url, part)
    assert part.read_bytes() == CONTENT
    assert served.asked == ["bytes=256001-", None]


def test_a_server_that_says_no_length(served: Served, part: Path) -> None:
    served.says_length = False
    totals: set[int] = set()
    download(served.url, part, show=lambda done, total: totals.add(total))
    assert part.read_bytes() == CONTENT
    assert totals == {0}


@pytest.mark.parametrize(("status", "reason"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_server_that_rejects(served: Served, part: Path, status: int, reason: str) -> None:
    part.write_bytes(CONTENT[:10])
    served.status = status
    with pytest.raises(ConnectionError, match=rf"^http://.*/book\.txt: the server answers {reason}$"):
        download(served.url, part)
    assert part.read_bytes() == CONTENT[:10]


def test_a_server_that_never_answers(served: Served, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    served.hangs = True
    with pytest.raises(ConnectionError, match=r"/book\.txt: .*timed out"):
        download(served.url, part)
    assert not part.exists()


def test_no_server(part: Path) -> None:
    with socket.socket() as unused:  # bound, and not listening
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/book.txt"
        with pytest.raises(ConnectionError, match=r"/book\.txt: .*refused"):
            download(url, part)


def test_an_interruption_leaves_what_has_come(served: Served, part: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(served.url, part, show=interrupt)
    kept = part.read_bytes()
    assert 0 < len(kept) < len(CONTENT)
    assert CONTENT.startswith(kept)


def test_what_does_not_end(served: Served, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LENGTH_LIMIT", 200_000)
    with pytest.raises(CheckpointError, match="sends more than 200,000 bytes"):
        download(served.url, part)
