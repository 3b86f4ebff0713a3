"""``tinyxp trace``: the walk, what it writes, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tinyxp
from tests.reference import GPT2_CONFIG, drawn
from tinyxp.cli.trace import trace
from tinyxp.formats.safetensors_file import read_safetensors


def run(*arguments: str | Path, text: str | None = None) -> Result:
    """The command in this process; what it raises, ``tinyxp`` turns into a line."""
    given = list(map(str, arguments))
    return CliRunner().invoke(trace, given, input=text, standalone_mode=False, catch_exceptions=False)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model in a folder, without a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    tinyxp.save(drawn(tinyxp.Config()), folder)
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    tinyxp.save(drawn(GPT2_CONFIG), folder)
    return folder


def test_the_walk_begins_with_tokens_and_ends_with_what_comes_next() -> None:
    lines = run("holmes", "Holmes looked").stdout.splitlines()
    params, text = tinyxp.load("holmes", dtype="float32"), tinyxp.load_tokenizer("holmes")
    ids = text.encode("Holmes looked")
    assert lines[0] == "2 tokens, float32 on numpy"
    assert [line.split() for line in lines[1:3]] == [
        ["0", str(ids[0]), "Holmes"],
        ["1", str(ids[1]), "␣looked"],
    ]
    logits = tinyxp.forward(params, [ids])[0, -1].astype(float)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    best = np.argsort(-p)[:5]
    assert lines[-6] == "next token"
    for line, index in zip(lines[-5:], best, strict=True):
        mass, found, spelled = line.split()
        assert (int(found), spelled) == (index, text.decode([index]).replace(" ", "␣"))
        assert float(mass) == pytest.approx(p[index], rel=1e-3)


def test_a_line_for_each_point_under_its_block(llama: Path) -> None:
    lines = run(llama, "--ids", "3,1,4").stdout.splitlines()
    points = tinyxp.trace(tinyxp.load(llama), [[3, 1, 4]])
    walk = [line.split() for line in lines if "float32  min" in line]
    assert [line[0] for line in walk] == list(points)
    at = {line.split()[0]: i for i, line in enumerate(lines) if line.strip()}
    headings = [i for i, line in enumerate(lines) if line in ("block 0", "block 1")]
    assert headings == [at["blocks.0.attn_norm"] - 1, at["blocks.1.attn_norm"] - 1]
    for line in walk:
        x = np.asarray(points[line[0]], dtype=float)
        assert "".join(line[1:]).startswith(str(x.shape).replace(" ", "") + "float32")
        figures = dict(zip(line[-8::2], map(float, line[-7::2]), strict=True))
        expected = {"min": x.min(), "max": x.max(), "mean": x.mean(), "rms": np.sqrt(np.mean(x**2))}
        assert figures == pytest.approx(expected, rel=1e-3)


def test_points_are_chosen_by_patterns_and_stay_in_order(llama: Path) -> None:
    record = json.loads(run(llama, "--ids", "3,1", "--points", "logits, blocks.*.attn.[qk]", "--json").stdout)
    wanted = [f"blocks.{i}.attn.{part}" for i in range(2) for part in "qk"]
    assert list(record["points"]) == [*wanted, "logits"]
    assert record["points"]["blocks.0.attn.k"]["shape"] == [1, 2, 16]


def test_json_holds_the_walk(gpt2: Path) -> None:
    record = json.loads(run(gpt2, "--ids", "3,1,4", "--json", "--dtype", "float64").stdout)
    assert (record["model"], record["backend"], record["dtype"]) == (str(gpt2), "numpy", "float64")
    assert (record["ids"], record["tokens"]) == ([3, 1, 4], ["#3", "#1", "#4"])
    points = tinyxp.trace(tinyxp.load(gpt2, dtype="float64"), [[3, 1, 4]])
    assert list(record["points"]) == list(points)
    for name, found in record["points"].items():
        assert found["dtype"] == "float64"
        assert found["shape"] == list(points[name].shape)
        assert found["mean"] == pytest.approx(points[name].mean(), abs=1e-12)
        assert found["not_finite"] == 0
    assert sum(guess["p"] for guess in record["next"]) < 1.0
    assert record["next"][0]["id"] == points["logits"][0, -1].argmax()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_recorded_trace_holds_the_values_and_the_ids(llama: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    done = run(llama, "--ids", "3,1,4", "-o", path, "--points", "embed,blocks.1.*")
    assert done.stderr == f"wrote {path}\n"
    points = tinyxp.trace(tinyxp.load(llama), [[3, 1, 4]])
    wanted = {name: x for name, x in points.items() if name == "embed" or name.startswith("blocks.1.")}
    if suffix == ".npz":
        with np.load(path) as archive:
            found = dict(archive)
        assert found["ids"].dtype == np.int64
        assert found.pop("ids").tolist() == [[3, 1, 4]]
        assert set(found) == set(wanted)
        assert all(np.array_equal(found[name], x) for name, x in wanted.items())
    else:
        tensors = read_safetensors(path)
        assert (tensors["ids"].dtype, tensors["ids"].shape) == ("I64", (1, 3))
        assert set(tensors) == {"ids", *wanted}
        assert all(np.array_equal(tensors[name].read(), x) for name, x in wanted.items())


def test_bfloat16_is_recorded_as_float32(llama: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "t.npz"
    command = [llama, "--ids", "3,1", "--backend", "torch", "--dtype", "bfloat16"]
    shown = run(*command, "-o", path, "--points", "logits")
    assert "bfloat16  min" in shown.stdout
    points = tinyxp.trace(tinyxp.load(llama, xp=torch, dtype="bfloat16"), [[3, 1]])
    with np.load(path) as archive:
        assert archive["logits"].dtype == np.float32
        assert np.array_equal(archive["logits"], points["logits"].float().numpy())


@pytest.mark.parametrize("name", ["torch", "jax", "strict"])
def test_other_backends_tell_the_same(llama: Path, name: str, tmp_path: Path) -> None:
    pytest.importorskip({"strict": "array_api_strict"}.get(name, name))
    mine, theirs = (
        json.loads(
            run(llama, "--ids", "3,1,4", "--json", "--html", tmp_path / "p.html", "--backend", b).stdout
        )
        for b in ("numpy", name)
    )
    assert [guess["id"] for guess in theirs["next"]] == [guess["id"] for guess in mine["next"]]
    for point, figures in mine["points"].items():
        assert theirs["points"][point]["rms"] == pytest.approx(figures["rms"], rel=1e-5)


def test_a_page_says_what_it_shows(gpt2: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "p.html"
    done = run(gpt2, "--ids", "3,1", "--html", path)
    assert done.stderr == f"wrote {path}\n"
    text = path.read_text(encoding="utf-8")
    assert "<h1>One forward pass of gpt2</h1>" in text
    assert "computed in float32 on numpy" in text
    assert str(gpt2.parent) not in text


def test_a_page_is_of_a_reasonable_size(smollm2_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    run(smollm2_gguf, "The capital of France is Paris, and the capital of Italy is", "--html", path)
    assert path.stat().st_size < 500_000
    run(smollm2_gguf, "--ids", ",".join(map(str, range(100, 164))), "--html", path)
    assert path.stat().st_size < 3_000_000


def test_a_prompt_from_standard_input() -> None:
    assert run("holmes", "-", text="Holmes").stdout == run("holmes", "Holmes").stdout


def test_a_broken_model_is_shown_but_not_drawn(tmp_path: Path) -> None:
    arrays = {name: np.array(x) for name, x in drawn(tinyxp.Config()).items()}
    arrays["blocks.0.attn.o.weight"][0, 0] = np.nan
    tinyxp.save(tinyxp.Params(arrays, tinyxp.Config()), tmp_path / "m.npz")
    shown = run(tmp_path / "m.npz", "--ids", "3,1", "--points", "*.attn.out")
    assert "min          -  max          -  mean          -  rms          -  2 not finite" in shown.stdout
    record = json.loads(run(tmp_path / "m.npz", "--ids", "3,1", "--json").stdout)
    assert record["points"]["logits"]["min"] is None
    assert record["points"]["logits"]["not_finite"] == 2 * 128
    with pytest.raises(
        ValueError, match=r"^trace point blocks\.0\.attn\.out holds numbers that are not finite"
    ):
        run(tmp_path / "m.npz", "--ids", "3,1", "--html", tmp_path / "p.html")
    assert [path.name for path in tmp_path.iterdir()] == ["m.npz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--ids", "3", "--points", "embed,blocks.9.*"],
            r"^points has 'blocks\.9\.\*', which matches no trace point",
        ),
        (
            ["--ids", "3", "--points", ""],
            r"^points has '', which matches no trace point, such as embed, blocks",
        ),
        (["--ids", "3", "-o", "t.pt"], r"^output is 't\.pt'; it must end in \.npz or \.safetensors$"),
        (["--ids", "3,x"], r"^ids is '3,x'; it must be integers separated by commas$"),
        (["--ids", ""], r"^ids is ''; it must be integers"),
        (["--ids", "3,128"], r"^ids holds 128; it must be 0 or more and below the vocabulary size 128"),
        (["--ids", "-1"], r"^ids holds -1"),
        (["--ids", str(2**70)], r"^ids "),
        ([], r"^neither PROMPT nor --ids is given; one of them is needed$"),
        (["Once", "--ids", "3"], r"^PROMPT and --ids are both given"),
        (["Once"], r"name the one to use \(--tokenizer\)"),
        (["--ids", "3", "--tokenizer", "/no/such"], r"^/no/such: no such file or folder"),
        (["--ids", "3", "--backend", "cupy"], r"^backend is 'cupy'"),
        (["--ids", "3", "--dtype", "bfloat16"], r"^dtype is 'bfloat16'; numpy has"),
        (["--ids", "3", "--dtype", "int8"], r"^dtype is 'int8'"),
    ],
)
def test_bad_input_is_one_error(llama: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(llama, *arguments)


def test_an_empty_prompt_is_refused_where_nothing_stands_before_it() -> None:
    with pytest.raises(ValueError, match="^PROMPT is empty, and this model's tokenizer puts no token before"):
        run("holmes", "")


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"^/no/such/model: no such file or folder"):
        run("/no/such/model", "Once")


def test_learned_positions_end(gpt2: Path) -> None:
    with pytest.raises(ValueError, match=r"17 > 16, the max_seq_len"):
        run(gpt2, "--ids", ",".join(["1"] * 17))


def test_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="standard input is closed"):
        trace.main(["holmes", "-"], standalone_mode=False)


@pytest.mark.parametrize("option", ["--html", "-o"])
@pytest.mark.parametrize("place", ["file/p.npz", "folder.npz"])
def test_what_cannot_be_written_leaves_nothing(llama: Path, tmp_path: Path, option: str, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.npz").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((OSError, ValueError), match=place.partition("/")[0]):
        run(llama, "--ids", "3", option, tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["--html", "-o"])
def test_a_full_disk_leaves_the_file_that_was_there(
    llama: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "p.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        run(llama, "--ids", "3", option, path)
    assert [(x.name, x.read_bytes()) for x in tmp_path.iterdir()] == [("p.npz", b"old")]


def test_nothing_is_printed_where_writing_fails(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        trace.main([str(llama), "--ids", "3", "-o", str(tmp_path / "file" / "t.npz")], standalone_mode=False)
    assert capsys.readouterr().out == ""


def test_threads_are_a_number() -> None:
    with pytest.raises(click.BadParameter, match="0"):
        run("holmes", "Once", "--threads", 0)
