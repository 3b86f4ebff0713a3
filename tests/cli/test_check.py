"""``tinyxp check``: its table, its JSON and its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from tinyxp.cli import commands
from tinyxp.testing import LAWS, Draw, Subject, law, subject

pytest.importorskip("array_api_strict")


def run(*arguments: str | int, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, after ``code``."""
    code += "; import runpy; runpy.run_module('tinyxp', run_name='__main__')"
    command = [sys.executable, "-c", code.removeprefix("; "), "check", *map(str, arguments)]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)


FEW = ["--backend", "numpy,strict", "--laws", "causality", "--max-examples", "3"]


@pytest.fixture
def more() -> Iterator[None]:
    """Laws of a region "here": strict breaks one, an exception the next, and one applies to neither."""
    before = dict(LAWS)

    @law("Rows are short.", of="op", region="here", source="nowhere", needs="ops")
    def rows_are_short(subject: Subject, draw: Draw) -> None:
        row = np.array([0.5] * draw("length", st.integers(1, 9)))
        assert subject.name == "numpy" or len(row) < 4, f"a row of {len(row)}"

    @law("Everything is known.", of="op", region="here", source="nowhere")
    def everything_is_known(subject: Subject, draw: Draw) -> None:
        raise KeyError("unknown")

    @law("It compiles.", of="op", region="here", source="nowhere", needs="compiler")
    def it_compiles(subject: Subject, draw: Draw) -> None:
        raise AssertionError("nobody does")

    yield
    LAWS.clear()
    LAWS.update(before)


def check(*arguments: str) -> tuple[int, str, str]:
    """The command in this process: exit status, output, errors."""
    result = CliRunner().invoke(commands.cli, ["check", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


def test_a_table_of_laws_by_subjects(more: None) -> None:
    status, out, _ = check("--backend", "numpy,strict", "--laws", "causality,it-*", "--max-examples", "3")
    assert status == 0
    assert out.splitlines() == [
        "                     numpy  strict",
        "causality",
        "  causality          pass   pass",
        "  prefix-invariance  pass   pass",
        "here",
        "  it-compiles        -      -",
        "",
        "4 hold, 0 broken, 2 do not apply (-)",
        "  2: its library does not compile (numpy, strict)",
    ]


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r})"
    done = run(*FEW, code=code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == check(*FEW)[1]
    assert list(tmp_path.iterdir()) == []


def test_json_for_programs() -> None:
    status, out, _ = check(*FEW, "--json")
    record = json.loads(out)
    assert status == 0
    assert record.keys() == {"laws", "verdicts"}
    (first, *_) = record["laws"]
    assert first == {
        "name": "causality",
        "sentence": "A later token never changes an earlier logit.",
        "of": "model",
        "region": "causality",
        "source": "Vaswani et al., 2017, section 3.2.3",
    }
    assert len(record["verdicts"]) == 4
    verdict = record["verdicts"][1]
    assert verdict.pop("seconds") > 0
    assert verdict == {
        "law": "causality", "subject": "strict", "status": "pass", "reason": "", "example": None,
    }  # fmt: skip


def test_a_broken_law_is_shown_and_exits_1(more: None) -> None:
    status, out, _ = check("--backend", "numpy,strict", "--laws", "here,causality")
    assert status == 1
    assert "\nhere\n  rows-are-short       pass   FAIL\n  everything-is-known  FAIL   FAIL\n" in out
    assert "\n5 hold, 3 broken, 2 do not apply (-)\n" in out
    report = out[out.index("\nrows-are-short, by strict: Rows are short.\n") :].splitlines()
    assert report[2].startswith("  a row of 4")
    assert report[3] == "  To reproduce:"
    lines = "\n".join(line.removeprefix("    ") for line in report[4:9])
    assert lines.endswith("\nexample = {'length': 4}\nreplay('rows-are-short', example, subject('strict'))")
    with pytest.raises(AssertionError, match="a row of 4"):
        exec(lines, {})
    assert out.count("KeyError: 'unknown'") == 2


def test_a_broken_law_in_json(more: None) -> None:
    status, out, _ = check("--backend", "strict", "--laws", "here", "--json")
    assert status == 1
    first = json.loads(out)["verdicts"][0]
    assert (first["status"], first["example"]) == ("fail", "{'length': 4}")
    assert first["reason"].startswith("a row of 4")
    assert (
        check("--backend", "strict", "--laws", "here", "--json")[1].split('"seconds"')[0]
        == out.split('"seconds"')[0]
    )


def test_the_exit_status_of_the_process() -> None:
    code = "import tinyxp.testing as t; t.law('No.', of='op', region='here', source='')(lambda s, d: 1 / 0)"
    assert run("--backend", "numpy", "--laws", "here", code=code).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--laws", "no-such"], "laws is 'no-such', which matches none of the"),
        (["--laws", ""], "laws is '', which matches none of the"),
        (["--backend", "nunpy"], "backend is 'nunpy'; known are array_api_strict, dask,"),
        (["--backend", "numpy,"], "backend is ''; known are"),
        (["--backend", "json"], "backend is 'json', a module whose arrays, if it has any"),
        (
            ["--backend", "strict+kernels"],
            "subject is 'strict+kernels'; only 'kernels' may follow '+', for",
        ),
        (["--max-examples", "0"], "max_examples is 0; it must be an integer of 1 or more"),
        (["--max-examples", "many"], "'many' is not a valid integer"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tinyxp", "check", *arguments])
    assert commands.run() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tinyxp: ")
    assert line in err
    assert err.count("\n") == 1


def test_the_default_is_what_is_installed_of_the_first_class_backends() -> None:
    hidden = "import sys; sys.modules['jax'] = sys.modules['torch'] = None"
    done = run("--laws", "causality", "--max-examples", "1", code=hidden)
    assert done.stdout.splitlines()[0].split() == ["numpy", "strict"]


def test_kernels_and_free_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("tinyxp.testing.subject", lambda name, pooled: asked.append(pooled) or subject(name))
    arguments = ["--backend", "numpy+kernels", "--laws", "causality", "--max-examples", "2"]
    assert "numpy+kernels\n" in check(*arguments)[1]
    assert check(*arguments, "--all-shapes")[0] == 0
    assert asked == [None, False]


def test_without_hypothesis() -> None:
    missing = "import sys; sys.modules['hypothesis'] = None"
    for arguments, status in ((["--laws", "causality"], 2), (["--help"], 0)):
        done = run(*arguments, code=missing)
        assert done.returncode == status
        assert ("pip install 'tinyxp[check]'" in done.stderr) is (status == 2)
        assert done.stderr.count("\n") <= 1


def test_help_imports_nothing_heavy() -> None:
    code = "import sys\nimport tinyxp.cli.commands\n"
    code += "print([name for name in ('numpy', 'hypothesis', 'tinyxp.testing') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_control_c_exits_130() -> None:
    code = """
import runpy, signal, time
import tinyxp.testing

@tinyxp.testing.law("It ends.", of="op", region="here", source="nowhere")
def slow(subject, draw):
    print("on", flush=True)
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell turns off in the background
runpy.run_module("tinyxp", run_name="__main__")
"""
    command = [sys.executable, "-c", code, "check", "--backend", "numpy", "--laws", "here"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_bar_on_a_terminal_only() -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tinyxp", "check", *FEW]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "checking" in shown
    assert "100%" in shown
    assert "checking" not in done.stdout
