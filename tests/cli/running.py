"""The command line as a person runs it: in a process of its own; or in this one, which is faster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tinyxp.cli import commands

SMALL = ("--width", 16, "--heads", 2, "--layers", 1, "--context", 16, "--batch", 4, "--vocab", 280)
"""Options of ``tinyxp train`` for a model that learns in seconds."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tinyxp", *map(str, arguments)]


def run(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, input=text, timeout=120, check=False
    )


class Done(NamedTuple):
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


class Call:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | int | float | Path) -> Done:
        self.monkeypatch.setattr(sys, "argv", ["tinyxp", *map(str, arguments)])
        status = commands.run()
        return Done(status, *self.capsys.readouterr())
