"""The front door: which format, which library and dtype, the hub, converting, describing, and bad paths."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.config import GPT2
from tinyxp.formats import convert, describe, load_config

from .files import SIZES, draw, equal


@pytest.fixture
def params() -> Params:
    return draw(Config(**SIZES))


@pytest.fixture
def folder(params: Params, tmp_path: Path) -> Path:
    tinyxp.save(params, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("format", ["model", "model.npz"])
def test_every_library_and_dtype(
    params: Params, backend: tinyxp.Backend, format: str, tmp_path: Path
) -> None:
    tinyxp.save(params, tmp_path / format)
    ids = [[3, 1, 4, 1, 5]]
    expected = tinyxp.forward(params, ids)
    loaded = tinyxp.load(tmp_path / format, xp=backend.xp, device=backend.devices()[0])
    assert np.abs(backend.to_numpy(tinyxp.forward(loaded, ids)) - expected).max() < 1e-4
    for dtype in backend.dtypes():
        assert tinyxp.load(tmp_path / format, xp=backend.xp, dtype=dtype).dtype == backend.dtype(dtype)


def test_a_dtype_that_the_library_lacks(folder: Path, params: Params) -> None:
    with pytest.raises(ValueError, match="bfloat16"):
        tinyxp.load(folder, dtype="bfloat16")
    with pytest.raises(ValueError, match="int8"):
        tinyxp.load(folder, dtype="int8")


def test_a_dtype_that_jax_lacks_by_default(folder: Path, params: Params) -> None:
    jnp = pytest.importorskip("jax.numpy")
    tinyxp.save(params.to(dtype="float64"), folder)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tinyxp.load(folder, xp=jnp)
    assert tinyxp.load(folder, xp=jnp, dtype="float32").dtype == jnp.float32


def test_progress(folder: Path, params: Params, tmp_path: Path) -> None:
    total = sum(x.nbytes for x in params.values())
    for call in (
        lambda hear: tinyxp.load(folder, progress=hear),
        lambda hear: convert(folder, tmp_path / "new.npz", progress=hear),
        lambda hear: convert(folder, tmp_path / "new", progress=hear),
    ):
        heard: list[tuple[int, int]] = []
        call(lambda done, total, heard=heard: heard.append((done, total)))
        assert heard == sorted(set(heard))
        assert heard[-1] == (total, total)
        assert len(heard) == len(params)


def test_load_config_reads_no_weights(folder: Path, params: Params) -> None:
    (folder / "model.safetensors").unlink()
    assert load_config(folder) == params.config
    with pytest.raises(CheckpointError):
        describe(folder)


def test_describe_serves_every_format(folder: Path, params: Params, tmp_path: Path) -> None:
    tinyxp.save(params, tmp_path / "m.npz")
    for path in (folder, tmp_path / "m.npz"):
        infos = describe(path)
        assert sorted(name for info in infos for name in info.ours) == sorted(params)
        assert sum(info.nbytes for info in infos) == sum(x.nbytes for x in params.values())
    by_name = {info.name: info for info in describe(folder)}
    query = by_name["model.layers.0.self_attn.q_proj.weight"]
    assert (query.ours, query.shape, query.dtype, query.steps) == (
        ("blocks.0.attn.q.weight",),
        (24, 24),
        "F32",
        (),
    )


def test_describe_is_what_load_does(tmp_path: Path) -> None:
    tinyxp.save(draw(Config(**(SIZES | GPT2 | {"n_kv_heads": 4}))), tmp_path)
    fused = next(info for info in describe(tmp_path) if info.name == "transformer.h.1.attn.c_attn.weight")
    assert fused.ours == tuple(f"blocks.1.attn.{x}.weight" for x in "qkv")
    assert fused.shape == (24, 72)
    assert fused.steps == ("transposed", "split in 3")


def test_convert_keeps_dtypes_tokenizer_and_special_ids(folder: Path, params: Params, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tinyxp.save(params.to(torch, dtype="bfloat16"), folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"bos_token_id": 1, "eos_token_id": [2, 3]}))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "merges.txt"):
        (folder / name).write_text(name)
    (folder / "notes.md").write_text("private")
    new = tmp_path / "new"
    convert(folder, new)
    assert sorted(p.name for p in new.iterdir()) == sorted(
        p.name for p in folder.iterdir() if p.name != "notes.md"
    )
    assert (new / "tokenizer.json").read_text() == "tokenizer.json"
    written = json.loads((new / "config.json").read_text())
    assert (written["bos_token_id"], written["eos_token_id"]) == (1, [2, 3])
    assert {info.dtype for info in describe(new)} == {"BF16"}
    convert(folder, tmp_path / "m.npz")
    convert(tmp_path / "m.npz", tmp_path / "last")
    for taken in (new, tmp_path / "m.npz"):
        with pytest.raises(ValueError, match="holds a model already"):
            convert(folder, taken)
    for path in (new, tmp_path / "m.npz", tmp_path / "last"):
        assert equal(tinyxp.load(path), tinyxp.load(folder))
    assert (tmp_path / "last" / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_convert_llama2c(test_data: Path, tmp_path: Path) -> None:
    convert(test_data / "stories260k" / "stories260K.bin", tmp_path / "story")
    assert equal(tinyxp.load(tmp_path / "story"), tinyxp.load(test_data / "stories260k"))
    assert (tmp_path / "story" / "tok512.bin").exists()


@pytest.mark.parametrize("name", ["m.gguf", "m.bin", "model.safetensors", "m.pt", "m.PTH"])
def test_formats_that_are_not_written(name: str, folder: Path, params: Params, tmp_path: Path) -> None:
    for write in (lambda path: tinyxp.save(params, path), lambda path: convert(folder, path)):
        with pytest.raises(ValueError, match="is not written"):
            write(tmp_path / name)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        tinyxp.save(params, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_bad_paths(folder: Path, tmp_path: Path) -> None:
    def says(path: Path | str, words: str) -> None:
        for call in (tinyxp.load, load_config, describe):
            with pytest.raises(CheckpointError, match=words) as caught:
                call(path)
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)

    says(tmp_path / "absent.gguf", "no such file or folder")
    says("gpt2", "no such file or folder")
    says("some/model.gguf", "no such file or folder")
    says(folder / "model.safetensors", "pass its folder")
    says(folder / "config.json", "pass its folder")
    (tmp_path / "m.txt").write_text("x")
    says(tmp_path / "m.txt", r"\.txt is not a known format")
    loop = tmp_path / "loop.npz"
    loop.symlink_to(loop)
    says(loop, "symbolic links")
    os.mkfifo(tmp_path / "pipe.gguf")
    says(tmp_path / "pipe.gguf", "not a regular file")
    for suffix in ("gguf", "bin", "npz"):
        empty = tmp_path / f"empty.{suffix}"
        empty.touch()
        says(empty, "is empty")
    with pytest.raises(CheckpointError, match="null"):
        tinyxp.load("a\0b.gguf")


def test_files_that_are_folders_and_locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = folder / "model.safetensors"

    def locked(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(np, "memmap", locked)
        with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read: Permission denied"):
            tinyxp.load(folder)
    weights.unlink()
    weights.mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        tinyxp.load(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        load_config(folder)


def test_hub(folder: Path, params: Params, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    asked: list[Any] = []

    def download(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert equal(tinyxp.load("org/tiny-model"), params)
    assert load_config("org/tiny-model") == params.config
    assert [name for name, _ in asked] == ["org/tiny-model"] * 2
    assert "*.safetensors" in asked[0][1]
    assert "*.safetensors" not in asked[1][1]

    def offline(name: str, **options: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("Cannot reach the hub.\nMore lines.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"Cannot reach the hub.*pass its path") as caught:
        tinyxp.load("org/tiny-model")
    assert "\n" not in str(caught.value)
    # A path that exists is never looked up.
    tinyxp.save(params, tmp_path / "org" / "tiny-model")
    assert equal(tinyxp.load("org/tiny-model"), params)


def test_hub_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[hf\]'"):
        tinyxp.load("org/tiny-model")


def test_a_gguf_does_not_take_a_tokenizer_that_stands_beside_it(smollm2_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to(smollm2_gguf)
    (tmp_path / "tokenizer.json").write_text("another model's")
    convert(tmp_path / "m.gguf", tmp_path / "converted")
    assert {p.name for p in (tmp_path / "converted").iterdir()} == {"config.json", "model.safetensors"}
