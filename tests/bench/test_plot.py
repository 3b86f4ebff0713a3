"""The picture of a bench, and what is checked before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tinyxp.bench.plot import draw, need_matplotlib
from tinyxp.bench.session import Bench


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_the_picture(tiny_bench: Bench, tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw(tiny_bench, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_file_that_would_be_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"plot is 'a.txt'; it must end in one of .png, .svg, .pdf"):
        need_matplotlib("a.txt")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[plot\]'"):
        need_matplotlib("a.png")
