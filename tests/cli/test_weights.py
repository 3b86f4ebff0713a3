"""The weight cache from the command line: the same text with and without, and one line where it matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tinyxp
from tinyxp import Config
from tinyxp.text import bpe

from ..checkpoints.files import write_quantised

GENERATE = ("generate", "hello", "-n", "4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantised GGUF with a tokenizer of the 256 bytes."""
    config = Config(vocab_size=256, n_layers=1, d_model=32, d_ff=64, n_heads=4, n_kv_heads=2)
    tokens = list(bpe.byte_characters())
    merge = f"{tokens[104]} {tokens[101]}"
    tokens[255] = f"{tokens[104]}{tokens[101]}"
    tokenizer = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": [merge]}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()}
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return write_quantised(path, tinyxp.init(config, seed=1), **metadata)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def run(cache: Path | str, *arguments: str | Path, limit: str = "") -> subprocess.CompletedProcess[str]:
    """tinyxp with ``cache`` in TINYXP_CACHE; ``limit`` is a command of the shell that goes before it."""
    command = [sys.executable, "-m", "tinyxp", *map(str, arguments)]
    if limit:
        command = ["sh", "-c", f'{limit}; exec "$@"', "sh", *command]
    environment = os.environ | {"TINYXP_CACHE": str(cache)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def only(cache: Path) -> Path:
    [entry] = cache.iterdir()
    return entry


def test_the_first_run_says_what_it_wrote_and_the_second_uses_it(model: Path, cache: Path) -> None:
    without = run("", *GENERATE, "-m", model)
    assert (without.returncode, without.stderr) == (0, "")
    first = run(cache, *GENERATE, "-m", model)
    assert (first.returncode, first.stdout) == (0, without.stdout)
    assert first.stderr.startswith(f"tinyxp: kept the weights in {only(cache)} (")
    assert "'tinyxp cache clear' removes them" in first.stderr
    assert "TINYXP_CACHE" in first.stderr
    assert first.stderr.count("\n") == 1
    written = only(cache).stat()
    second = run(cache, *GENERATE, "-m", model)
    assert (second.returncode, second.stdout, second.stderr) == (0, without.stdout, "")
    assert (only(cache).stat().st_ino, only(cache).stat().st_mtime_ns) == (
        written.st_ino,
        written.st_mtime_ns,
    )


def test_the_entry_is_what_is_computed_with(model: Path, cache: Path, tmp_path: Path) -> None:
    """Another model's weights under this one's name, whole in themselves, would be believed."""
    run(cache, *GENERATE, "-m", model)
    zeros = tinyxp.load(model)
    tinyxp.save(tinyxp.Params({name: 0 * x for name, x in zeros.items()}, zeros.config), tmp_path / "0.npz")
    (tmp_path / "0.npz").replace(only(cache))
    record = json.loads(run(cache, *GENERATE, "-m", model, "--json").stdout)
    assert record["ids"] == [0, 0, 0, 0]


def test_an_empty_variable_keeps_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("", *GENERATE, "-m", model).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert run("", "cache").stdout == "off: TINYXP_CACHE is empty\n"
    assert run("", "cache", "clear").returncode == 0


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_truncated_entry_is_written_anew(model: Path, cache: Path, size: int) -> None:
    first = run(cache, *GENERATE, "-m", model)
    whole = only(cache).read_bytes()
    only(cache).write_bytes(whole[:size])
    again = run(cache, *GENERATE, "-m", model)
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, first.stderr)
    assert len(only(cache).read_bytes()) == len(whole)


def test_a_folder_that_cannot_be_written_costs_one_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path / "file" / "cache", *GENERATE, "-m", model)
    assert (done.returncode, done.stdout) == (0, run("", *GENERATE, "-m", model).stdout)
    assert done.stderr.startswith("tinyxp: the weights are not kept for later: ")
    assert done.stderr.count("\n") == 1
    assert "TINYXP_CACHE" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="the limit of a file's size is the shell's")
def test_a_full_disk_costs_one_line(model: Path, cache: Path) -> None:
    done = run(cache, *GENERATE, "-m", model, limit="ulimit -f 20")
    assert (done.returncode, done.stdout) == (0, run("", *GENERATE, "-m", model).stdout)
    assert done.stderr.startswith("tinyxp: the weights are not kept for later: ")
    assert done.stderr.count("\n") == 1
    assert not cache.exists()


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [("numpy", "float64"), ("torch", "float32"), ("torch", "bfloat16"), ("jax", "float32")],
)
def test_every_library_and_dtype_computes_the_same_from_it(
    model: Path, cache: Path, backend: str, dtype: str
) -> None:
    pytest.importorskip(backend)
    options = (*GENERATE, "-m", model, "--backend", backend, "--dtype", dtype, "--json")
    run(cache, *GENERATE, "-m", model)
    without, kept = json.loads(run("", *options).stdout), run(cache, *options)
    assert kept.stderr == ""
    found = json.loads(kept.stdout)
    assert (found["ids"], found["dtype"], found["backend"]) == (without["ids"], dtype, backend)


def test_what_is_refused_writes_nothing(model: Path, cache: Path) -> None:
    for refused in (("--dtype", "float8"), ("--tokenizer", "/no/such/file"), ("--device", "cuda:7")):
        assert run(cache, *GENERATE, "-m", model, *refused).returncode == 2
        assert not cache.exists()


def test_cache_shows_and_clears_what_is_its_own(model: Path, cache: Path) -> None:
    assert run(cache, "cache").stdout == f"{cache}: files 0, 0.0 MB\n"
    run(cache, *GENERATE, "-m", model)
    size = only(cache).stat().st_size
    (cache / "mine.npz").touch()
    assert run(cache, "cache").stdout == f"{cache}: files 1, {size / 1e6:,.1f} MB\n"
    assert run(cache, "cache", "clear").stdout == f"removed {size / 1e6:,.1f} MB\n"
    assert [path.name for path in cache.iterdir()] == ["mine.npz"]
    assert "kept the weights in" in run(cache, *GENERATE, "-m", model).stderr


def test_the_folder_without_the_variable(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TINYXP_CACHE")
    command = [sys.executable, "-m", "tinyxp", "cache"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"{tmp_path / 'tinyxp'}: files 0, 0.0 MB\n"
