"""Finding a model by path or name, and describing it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.config import GPT2
from tinyxp.formats import describe, load_config

from .files import SIZES, draw


def test_load_config_reads_no_weights(folder: Path, llama: Params) -> None:
    (folder / "model.safetensors").unlink()
    assert load_config(folder) == llama.config
    with pytest.raises(CheckpointError):
        describe(folder)


def test_describe_serves_every_format(folder: Path, llama: Params, tmp_path: Path) -> None:
    tinyxp.save(llama, tmp_path / "m.npz")
    for path in (folder, tmp_path / "m.npz"):
        infos = describe(path)
        assert sorted(name for info in infos for name in info.ours) == sorted(llama)
        assert sum(info.nbytes for info in infos) == sum(x.nbytes for x in llama.values())
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
