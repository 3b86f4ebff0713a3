"""Examples as a person runs them: in a folder of their own, and what they print and draw."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., SimpleNamespace]:
    """Runs examples/NAME.py with arguments: its ``lines``, its ``globals`` and its ``picture``."""

    def run(name: str, *arguments: str) -> SimpleNamespace:
        script = EXAMPLES / f"{name}.py"
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        monkeypatch.chdir(tmp_path)
        found = runpy.run_path(str(script), run_name="__main__")
        lines = capsys.readouterr().out.splitlines()
        return SimpleNamespace(lines=lines, globals=found, picture=tmp_path / f"{name}.png")

    return run


@pytest.fixture
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The functions of the example that the test's module is named after, without a run of it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    name = request.path.stem.removeprefix("test_")
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


@pytest.fixture
def tiktoken_files(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken's rank files, from the test data."""
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(test_data / "gpt2-bpe" / "tiktoken-cache"))


@pytest.fixture
def is_png() -> Callable[[Path], bool]:
    """Whether a file is a PNG of some size: an empty page of these examples is below 10 KB."""

    def judge(path: Path) -> bool:
        return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and os.path.getsize(path) > 10_000

    return judge
