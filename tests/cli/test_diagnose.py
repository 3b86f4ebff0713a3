"""``tinyxp diagnose``: its exit status, what it prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tinyxp
from tests.doctor.models import IDS, LLAMA_SMALL, traced, with_weight
from tests.reference import drawn
from tinyxp.cli.diagnose import diagnose
from tinyxp.doctor import write_trace


def run(*arguments: str | Path) -> Result:
    """The command in this process; what it raises, ``tinyxp`` turns into a line."""
    given = list(map(str, arguments))
    return CliRunner().invoke(diagnose, given, standalone_mode=False, catch_exceptions=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, wrong copies of it, and recorded traces of them."""
    folder = tmp_path_factory.mktemp("models")
    right = drawn(LLAMA_SMALL)
    wrong = with_weight(right, "blocks.0.attn.o.weight", lambda x: x.T.copy())
    tinyxp.save(right, folder / "right")
    tinyxp.save(wrong, folder / "wrong")
    points = traced(wrong, IDS)
    write_trace(folder / "port.npz", points, ids=IDS)
    strange = points | {"blocks.0.attn.q": np.sin(7.0 * points["blocks.0.attn.q"])}
    write_trace(folder / "strange.npz", strange, ids=IDS)
    (folder / "port.py").write_text(
        "import tinyxp\n\nparams = tinyxp.load(__file__.replace('port.py', 'wrong'))\n\n"
        "def logits(ids):\n    return tinyxp.forward(params, ids)\n"
    )
    return folder


def test_where_they_agree_it_says_so_and_nothing_else(models: Path) -> None:
    found = run(models / "right", models / "right@:float64")
    assert found.return_value == 0
    (line,) = found.stdout.splitlines()
    assert line.startswith("They agree: all 37 trace points are")


@pytest.mark.parametrize("side", ["wrong", "port.npz", "port.py:logits"])
def test_the_cause_is_named_with_what_to_do_and_what_is_known_of_it(side: str, models: Path) -> None:
    found = run(models / "right", models / side)
    assert found.return_value == 1
    lines = found.stdout.splitlines()
    assert lines[0].startswith("First difference at ")
    assert lines[2].startswith("1. B's matrix attn.o is left transposed")
    assert any(line.startswith("   Fix: transpose attn.o") for line in lines)
    confidence = "proved" if side == "wrong" else "certain"
    assert any("in block 0 only" in line and line.endswith(confidence) for line in lines)
    assert any(line.startswith("check ") and "rounding at every point" in line for line in lines)
    assert any(line.startswith("proof ") for line in lines) == (side == "wrong")


def test_json_holds_what_the_text_says(models: Path) -> None:
    found = run(models / "right", models / "wrong", "--json")
    assert found.return_value == 1

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(found.stdout, parse_constant=refuse)
    (cause,) = data["causes"]
    assert data["explained"] is True
    assert data["agrees"] is False
    assert data["agrees_after"] is True
    assert data["ran_out"] is False
    assert (cause["point"], cause["blocks"], cause["confidence"]) == ("blocks.0.attn.out", [0], "proved")
    assert data["comparison"]["first"] == "blocks.0.attn.out"
    assert data["after"]["rms"] < 1e-5 < data["before"]["rms"]
    text = " ".join(run(models / "right", models / "wrong").stdout.split())
    for said in (
        cause["sentence"],
        cause["fix"],
        cause["point"],
        data["comparison"]["answer"],
        *data["notes"],
    ):
        assert said in text
    assert data["proof"][1:] in text
    agreed = json.loads(run(models / "right", models / "right", "--json").stdout)
    assert (agreed["agrees"], agreed["causes"], agreed["proof"]) == (True, [], None)


def test_what_nothing_explains_is_said(models: Path) -> None:
    found = run(models / "right", models / "strange.npz", "--seconds", "30")
    assert found.return_value == 1
    text = " ".join(found.stdout.split())
    assert "blocks.0.attn.q" in text
    assert "certain" not in found.stdout.split("2. ")[0].splitlines()[-2]
    assert "proof" not in text


def test_a_recorded_a_is_diagnosed_by_b(models: Path) -> None:
    found = run(models / "port.npz", models / "right")
    assert found.return_value == 1
    assert "1. A's matrix attn.o is left transposed" in found.stdout


def test_ids_and_padding_are_given_as_for_diff(models: Path) -> None:
    found = run(models / "right", models / "wrong", "--ids", "3,1,4,1,5", "--pad", "2", "--json")
    data = json.loads(found.stdout)
    assert data["comparison"]["ids"] == [[0, 0, 3, 1, 4, 1, 5]]
    assert data["comparison"]["mask"] == [[False] * 2 + [True] * 5]
    assert "transposed" in data["causes"][0]["sentence"]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("port.npz", "port.npz", r"neither .* nor .* has weights"),
        ("right", "nowhere", r"nowhere"),
        ("right", "right@numpy:float33", r"float33"),
        ("right", "port.py:other", r"has no 'other'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(a: str, b: str, said: str, models: Path) -> None:
    with pytest.raises((ValueError, OSError), match=said) as error:
        run(models / a, models / b)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_seconds_are_a_positive_number(seconds: str, models: Path) -> None:
    with pytest.raises(click.BadParameter) as error:
        run(models / "right", models / "wrong", "--seconds", seconds)
    assert error.value.param is not None
    assert error.value.param.name == "seconds"


def test_in_a_shell(models: Path) -> None:
    for arguments, status in (
        ((models / "right", models / "right"), 0),
        ((models / "right", models / "wrong"), 1),
        ((models / "right", models / "missing"), 2),
    ):
        command = [sys.executable, "-m", "tinyxp", "diagnose", *map(str, arguments)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert found.returncode == status
        assert "Traceback" not in found.stderr
        assert len(found.stderr.splitlines()) == (status == 2)
