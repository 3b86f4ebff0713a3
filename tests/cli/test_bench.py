"""``tinyxp bench``, run as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .running import Call, run


def test_a_bench_prints_tables_and_writes_its_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = ["--json", tmp_path / "b.json", "--plot", tmp_path / "b.png"]
    done = run("bench", "tiny", "--backends", "numpy", "--repeats", 1, "--prompt", 8, "--threads", 1, *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert "prefill of 8 tokens" in done.stdout
    assert "threads 1;" in done.stdout
    found = json.loads((tmp_path / "b.json").read_text())
    assert (found["prompt"], found["machine"]["threads"]) == (8, 1)
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["/no/such/model"], "/no/such/model: no such file or folder"),
        (["tiny", "--backends", "cupy"], "backend is 'cupy'; known are"),
        (["tiny", "--backends", "numpy", "--dtypes", "float8"], "dtype is 'float8'; known are"),
        (["tiny", "--backends", "numpy", "--dtypes", "bfloat16"], "dtype is 'bfloat16'; numpy has"),
        (["tiny", "--prompt", "64"], "prompt is 64; it must be below 64, the context of tiny"),
        (["tiny", "--repeats", "0"], "repeats is 0; it must be an integer of 1 or more"),
        (["tiny", "--threads", "0"], "0"),
        (["tiny", "--plot", "b.txt"], "plot is 'b.txt'; it must end in one of .png"),
        (
            ["tiny", "--json", "/no/such/folder/b.json"],
            "json is '/no/such/folder/b.json', in a folder that does not",
        ),
    ],
)
def test_bad_options_get_one_line_and_exit_status_2(call: Call, arguments: list[str], line: str) -> None:
    done = call("bench", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tinyxp: ")
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
