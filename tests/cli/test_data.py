import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tinyxp.cli.commands import cli
from tinyxp.text.corpus import CORPORA, Corpus, clean_gutenberg

FRAMED = "*** START ***\nOne.\n\nTwo.\n*** END ***\n"
TALE = Corpus(
    *("tale", "A tale", "http://127.0.0.1:1/tale.txt", clean_gutenberg),
    *(10, hashlib.sha256(b"One.\n\nTwo.").hexdigest()),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYXP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the one corpus that the command knows here."""
    monkeypatch.setitem(CORPORA, "tale", TALE)
    (tmp_path / "copy.txt").write_text(FRAMED)
    return tmp_path / "copy.txt"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tinyxp", "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_get_and_list(copy: Path, cache: Path) -> None:
    runner = CliRunner()
    before = runner.invoke(cli, ["data", "list"])
    assert (
        "tale         A tale\n             10 characters, not fetched: tinyxp data get tale\n"
        in before.output
    )
    got = runner.invoke(cli, ["data", "get", "tale", "--from", str(copy)])
    assert (got.exit_code, got.output) == (0, f"wrote {cache / 'tale.txt'}: 10 characters\n")
    assert (cache / "tale.txt").read_text() == "One.\n\nTwo."
    again = runner.invoke(cli, ["data", "get", "tale"])  # there is no server to ask
    assert (again.exit_code, again.output) == (0, f"tale is at {cache / 'tale.txt'} already\n")
    after = runner.invoke(cli, ["data", "list"])
    assert f"             10 characters, {cache / 'tale.txt'}\n" in after.output


def test_errors_take_one_line(tmp_path: Path) -> None:
    done = run("get", "watson")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tinyxp: NAME is 'watson'; known texts: sherlock\n"
    (tmp_path / "other.txt").write_text("another text")
    done = run("get", "sherlock", "--from", tmp_path / "other.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tinyxp: {tmp_path / 'other.txt'}: has no lines *** START and *** END around a text, "
        "as Project Gutenberg's files do\n"
    )


def test_sherlock_from_a_copy(test_data: Path, cache: Path) -> None:
    done = run("get", "sherlock", "--from", test_data / "books" / "pg1661_raw.txt")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"wrote {cache / 'sherlock.txt'}: 561,653 characters\n"
    done = run("list")
    assert "sherlock     Arthur Conan Doyle, The Adventures of Sherlock Holmes" in done.stdout
    assert done.stdout.endswith(f"561,653 characters, {cache / 'sherlock.txt'}\n")
