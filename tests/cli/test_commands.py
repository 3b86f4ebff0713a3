"""The group of commands: help, version, unknown ones, and errors in one line."""

from __future__ import annotations

import click
import pytest

import tinyxp
from tinyxp.cli import commands

from .running import Call, run


def test_help_and_version() -> None:
    assert "Continue PROMPT" in run("generate", "--help").stdout
    assert tinyxp.__version__ in run("--version").stdout
    assert run("frobnicate").returncode == 2
    bare = run()
    assert bare.returncode == 2
    assert bare.stdout.startswith("Usage: ")
    assert bare.stdout.count("\n") > 5


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("steps is 0\nand more"), "tinyxp: steps is 0 and more\n"),
        (ImportError("no such\x1b[2Jlibrary"), "tinyxp: no such\\x1b[2Jlibrary\n"),
        (MemoryError(), "tinyxp: MemoryError\n"),
        (OSError("disk full"), "tinyxp: disk full\n"),
    ],
)
def test_errors_are_one_line_and_status_2(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    @click.command()
    def backends() -> None:
        raise error

    monkeypatch.setitem(commands.cli.commands, "backends", backends)
    assert call("backends") == (2, "", line)


def test_other_errors_are_not_hidden(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def backends() -> None:
        raise AssertionError("a fault of ours")

    monkeypatch.setitem(commands.cli.commands, "backends", backends)
    with pytest.raises(AssertionError, match="a fault of ours"):
        call("backends")


def test_a_status_that_a_command_returns_is_the_exit_status(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(commands.cli.commands, "backends", click.command()(lambda: 1))
    assert call("backends") == (1, "", "")
