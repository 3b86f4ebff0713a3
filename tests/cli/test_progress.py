"""Progress bars: on a terminal, and never elsewhere."""

from __future__ import annotations

import sys

import pytest

from tinyxp.cli.progress import Show, counted, loading


def read(show: Show | None) -> int:
    if show is not None:
        for done in (1, 5, 10):
            show(done, 10)
    return 7


def test_without_a_terminal_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert loading(lambda show: 0 if show is None else 1) == 0
    assert list(counted([1, 2], "items")) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_bar_is_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert loading(read, "reading") == 7
    assert list(counted([1, 2, 3], "items")) == [1, 2, 3]
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert "items" in err
    assert err.endswith("\x1b[1A\x1b[2K")
    assert err.count("\x1b[1A\x1b[2K") == 2


def test_an_empty_file_is_no_division_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def empty(show: Show | None) -> None:
        assert show is not None
        show(0, 0)

    loading(empty)
