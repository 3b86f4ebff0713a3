"""``tinyxp diff``: its exit status, what it prints and writes, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tinyxp
from tests.doctor.models import GPT2_SMALL, IDS, LLAMA_SMALL, traced, with_weight
from tests.reference import drawn, libraries
from tinyxp.cli.diff import diff
from tinyxp.doctor import compare, write_trace


def run(*arguments: str | Path) -> Result:
    """The command in this process; what it raises, ``tinyxp`` turns into a line."""
    given = list(map(str, arguments))
    return CliRunner().invoke(diff, given, standalone_mode=False, catch_exceptions=False)


def shell(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "tinyxp", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of them in a wrong copy too, and a recorded trace."""
    folder = tmp_path_factory.mktemp("models")
    tinyxp.save(drawn(LLAMA_SMALL), folder / "llama")
    tinyxp.save(drawn(GPT2_SMALL), folder / "gpt2")
    wrong = with_weight(drawn(LLAMA_SMALL), "blocks.0.attn.v.weight", lambda x: x[::-1].copy())
    tinyxp.save(wrong, folder / "wrong")
    write_trace(folder / "port.npz", traced(wrong, IDS), ids=IDS)
    (folder / "port.py").write_text(
        "import numpy as np\n\ndef zeros(ids):\n    return np.zeros((*ids.shape, 61), np.float32)\n\n"
        "def broken(ids):\n    raise KeyError('weights')\n"
    )
    return folder


def test_the_exit_status_is_0_where_they_agree_and_1_where_they_differ(models: Path) -> None:
    same = run(models / "llama", models / "llama@:float64")
    assert same.return_value == 0
    assert same.stdout.startswith("They agree: all 37 trace points are")
    other = run(models / "llama", models / "wrong")
    assert other.return_value == 1
    assert other.stdout.startswith("First difference at blocks.0.attn.v (")


@pytest.mark.parametrize("library", libraries("torch", "jax"))
def test_a_backend_is_chosen_by_name(library: str, models: Path) -> None:
    found = run(models / "gpt2", f"{models / 'gpt2'}@{library}:float32")
    assert found.return_value == 0
    assert f"B          {models / 'gpt2'}@{library}:float32" in found.stdout.splitlines()


def test_json_parses_and_is_that_of_the_comparison(models: Path) -> None:
    found = run(models / "llama", models / "wrong", "--ids", "3,1,4;1,5,9", "--json")
    assert found.return_value == 1
    data = json.loads(found.stdout)
    wanted = compare(str(models / "llama"), str(models / "wrong"), [[3, 1, 4], [1, 5, 9]])
    assert data["ids"] == [[3, 1, 4], [1, 5, 9]]
    assert data["first"] == "blocks.0.attn.v"
    assert [p["times"] for p in data["points"]] == [row.excess for row in wanted.rows]
    text = run(models / "llama", models / "wrong", "--ids", "3,1,4;1,5,9", "--all").stdout.splitlines()
    assert text[0] == data["answer"]
    assert len([line for line in text if line.startswith(("blocks.", "embed", "final_norm", "logits"))]) == 37


def test_a_recorded_trace_brings_its_ids(models: Path) -> None:
    found = json.loads(run(models / "llama", models / "port.npz", "--json").stdout)
    assert found["ids"] == IDS.tolist()
    assert found["first"] == "blocks.0.attn.v"
    turned = json.loads(run(models / "port.npz", models / "llama", "--json").stdout)
    assert (turned["judged"], turned["points"][4]["at_fault"]) == ("A", "A")


def test_a_function_in_a_file(models: Path) -> None:
    found = run(models / "llama", f"{models / 'port.py'}:zeros")
    assert found.return_value == 1
    assert found.stdout.startswith("First difference at logits")


def test_padding_stands_before_the_ids_and_is_masked(models: Path) -> None:
    found = run(models / "llama", models / "llama@:float64", "--ids", "3,1,4", "--pad", "2", "--json")
    data = json.loads(found.stdout)
    assert data["ids"] == [[0, 0, 3, 1, 4]]
    assert data["mask"] == [[False, False, True, True, True]]
    assert data["agrees"]
    assert data["predictions"] == 3


def test_a_prompt_is_encoded_and_tokens_are_spelled() -> None:
    text = tinyxp.load_tokenizer("holmes")
    found = run("holmes", "holmes@numpy:float16", "--prompt", "Holmes looked", "--json", "--generate", "3")
    data = json.loads(found.stdout)
    ids = text.encode("Holmes looked")
    assert data["ids"][0][: len(ids)] == ids
    assert (len(data["ids"][0]), data["generated"]) == (len(ids) + 3, 3)


def test_a_tokenizer_may_stand_elsewhere(models: Path, tmp_path: Path) -> None:
    """Where the sides have none, or another's is meant; its ids must be the model's."""
    params, text = tinyxp.load("holmes", dtype="float32"), tinyxp.load_tokenizer("holmes")
    ids = [text.encode("Holmes looked")]
    write_trace(tmp_path / "port.npz", {"logits": tinyxp.forward(params, ids) * 2}, ids=ids)
    port = tmp_path / "port.npz"
    found = run(port, "holmes@:float32", "--tokenizer", "holmes", "--prompt", "Holmes looked")
    assert found.return_value == 1
    with pytest.raises(ValueError, match=r"recorded for ids"):
        run(port, "holmes", "--tokenizer", "holmes", "--prompt", "Watson looked")
    with pytest.raises(ValueError, match=r"ids holds \d+; it must be 0 or more and below .* 61"):
        run(models / "llama", models / "llama", "--prompt", "Holmes", "--tokenizer", "holmes")


def test_a_page_is_written_besides(models: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = run(models / "llama", models / "wrong", "--html", page)
    assert found.return_value == 1
    text = page.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "blocks.0.attn.v" in text


def test_a_page_is_written_whole_or_not_at_all(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run(models / "llama", models / "wrong", "--html", page)
    assert page.read_text() == "before"
    assert list(tmp_path.iterdir()) == [page]


def test_where_the_sides_cannot_be_compared_no_page_is_written(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ids holds 99"):
        run(models / "llama", models / "wrong", "--ids", "99", "--html", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ids", "3,x"), r"--ids is '3,x'; it must be integers separated by commas"),
        (("--ids", ""), r"--ids is ''"),
        (("--ids", "1,2;3"), r"--ids has rows of 2, 1 ids; they must be equally long"),
        (("--ids", "61"), r"ids holds 61"),
        (("--ids", "-1"), r"ids holds -1"),
        (("--ids", "99999999999999999999"), r"ids"),
        (("--prompt", "a", "--ids", "1"), r"--prompt and --ids are both given"),
        (("--pad", "2"), r"--pad needs --prompt or --ids"),
        (("--prompt", "a", "--tokenizer", "nowhere"), r"nowhere"),
        (("--prompt", "a"), r"tokenizer"),
        (("--prompt", "", "--tokenizer", "holmes"), r"--prompt is empty"),
        (("--html", "no/such/folder/page.html"), r"no/such/folder"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: tuple[str, ...], said: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no").write_text("")  # so that the folder cannot be made
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=said) as error:
        run(models / "llama", models / "wrong", *arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "arguments", [("--generate", "-1"), ("--pad", "-1"), ("--threads", "0"), ("--html", "."), ("more",)]
)
def test_options_out_of_range_are_refused(arguments: tuple[str, ...], models: Path) -> None:
    with pytest.raises(click.UsageError):
        run(models / "llama", models / "wrong", *arguments)


def test_traces_have_no_tokenizer_and_no_model(models: Path) -> None:
    port = models / "port.npz"
    assert run(port, port).return_value == 0
    with pytest.raises(ValueError, match=r"--prompt needs a tokenizer, and neither side is a model"):
        run(port, port, "--prompt", "Holmes")


def test_bad_input_is_one_line_and_status_2_in_a_shell(models: Path) -> None:
    for arguments in ((models / "llama", "nowhere"), (models / "llama", f"{models}/port.py:no")):
        found = shell("diff", *arguments)
        assert found.returncode == 2
        assert found.stdout == ""
        assert len(found.stderr.splitlines()) == 1
        assert "Traceback" not in found.stderr


def test_nothing_but_the_report_stands_on_standard_output(models: Path) -> None:
    found = shell("diff", models / "llama", models / "wrong", "--json")
    assert found.returncode == 1
    assert json.loads(found.stdout)["first"] == "blocks.0.attn.v"
    assert found.stderr == ""


def test_a_reader_that_stops_reading_leaves_no_traceback(models: Path) -> None:
    command = f'"{sys.executable}" -m tinyxp diff "{models}/llama" "{models}/wrong" --all | head -1'
    found = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ)
    )
    assert found.stdout.startswith("First difference at blocks.0.attn.v")
    assert len(found.stdout.splitlines()) == 1
    assert found.stderr == ""


def test_a_reader_that_never_reads_leaves_no_traceback(models: Path) -> None:
    command = [sys.executable, "-m", "tinyxp", "diff", f"{models}/llama", f"{models}/wrong"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(timeout=60) != 0
    assert len(said.splitlines()) <= 1
    assert "Traceback" not in said


def test_standard_output_that_is_closed_or_full_is_said_in_a_line(models: Path) -> None:
    for to in (">&-", "> /dev/full"):
        command = f'"{sys.executable}" -m tinyxp diff "{models}/llama" "{models}/llama" {to}'
        found = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
        )
        assert found.returncode == 2
        assert len(found.stderr.splitlines()) == 1
        assert "Traceback" not in found.stderr


def test_drawn_ids_fit_the_smaller_vocabulary(models: Path) -> None:
    found = run(models / "llama", models / "gpt2", "--json")
    data = json.loads(found.stdout)
    assert found.return_value == 1
    assert np.array(data["ids"]).shape == (1, 32)
    assert data["first"] == "embed"
