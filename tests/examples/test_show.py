"""show: what the examples share refuses a bad picture before anything runs, and lines up tables."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import EXAMPLES


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    import show

    return show


@pytest.mark.parametrize(
    "plot, reason",
    [
        ("x.txt", "it must end in one of .png"),
        ("x", "it must end in"),
        ("no/x.png", "its folder does not exist"),
    ],
)
def test_bad_picture_is_refused_first(
    example, capsys: pytest.CaptureFixture[str], tmp_path: Path, plot: str, reason: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        example("windows", "--plot", plot)
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert said.out == ""
    assert said.err.startswith(f"windows: plot is {plot!r}; ")
    assert reason in said.err
    assert list(tmp_path.iterdir()) == []


def test_picture_goes_where_it_is_told(example, is_png, tmp_path: Path) -> None:
    shown = example("windows", "--plot", "other.png")
    assert shown.lines[-1] == "picture: other.png"
    assert [path.name for path in tmp_path.iterdir()] == ["other.png"]
    assert is_png(tmp_path / "other.png")


def test_default_picture_is_named_after_the_script(show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["examples/some.py"])
    assert vars(show.arguments("text")) == {"plot": "some.png", "quick": False}
    monkeypatch.setattr(sys, "argv", ["some.py", "--quick", "--plot", "a.svg"])
    assert vars(show.arguments("text")) == {"plot": "a.svg", "quick": True}


def test_table_lines_up(show, capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["name", "n"], [["a", 1], ["longer", "1,000"]])
    assert capsys.readouterr().out.splitlines() == ["name        n", "a           1", "longer  1,000"]
