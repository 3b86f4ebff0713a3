"""Saving and converting models: dtypes, views, tokenizers, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params, UnsupportedModelError
from tinyxp.formats import convert, describe

from .files import equal, tensors_of


def test_convert_keeps_dtypes_tokenizer_and_special_ids(folder: Path, llama: Params, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tinyxp.save(llama.to(torch, dtype="bfloat16"), folder)
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
def test_formats_that_are_not_written(name: str, folder: Path, llama: Params, tmp_path: Path) -> None:
    for write in (lambda path: tinyxp.save(llama, path), lambda path: convert(folder, path)):
        with pytest.raises(ValueError, match="is not written"):
            write(tmp_path / name)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        tinyxp.save(llama, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_gguf_does_not_take_a_tokenizer_beside_it(smollm2_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to(smollm2_gguf)
    (tmp_path / "tokenizer.json").write_text("another model's")
    convert(tmp_path / "m.gguf", tmp_path / "converted")
    assert {p.name for p in (tmp_path / "converted").iterdir()} == {"config.json", "model.safetensors"}


def test_dtypes_are_kept(llama: Params, backend: tinyxp.Backend, tmp_path: Path) -> None:
    for dtype in backend.dtypes():
        params = llama.to(backend.xp, dtype=dtype)
        tinyxp.save(params, tmp_path / dtype)
        again = tinyxp.load(tmp_path / dtype, xp=backend.xp)
        for name in params:
            assert again[name].dtype == params[name].dtype
            assert np.array_equal(backend.to_numpy(again[name]), backend.to_numpy(params[name]))


def test_views_are_saved_in_their_own_order(llama: Params, tmp_path: Path) -> None:
    arrays = {name: np.asfortranarray(x) for name, x in llama.items()}
    arrays["blocks.0.attn.q.weight"] = np.ascontiguousarray(llama["blocks.0.attn.q.weight"].T).T
    tinyxp.save(Params(arrays, llama.config), tmp_path)
    assert equal(tinyxp.load(tmp_path), llama)
    query = tensors_of(tmp_path)["model.layers.0.self_attn.q_proj.weight"]
    assert np.array_equal(query, llama["blocks.0.attn.q.weight"])


def test_mixed_dtypes_and_values_that_are_not_finite(gpt2: Params, tmp_path: Path) -> None:
    arrays = {
        name: x.astype(np.float64 if name.endswith("attn.k.bias") else np.float32) for name, x in gpt2.items()
    }
    arrays["final_norm.bias"][:3] = [np.nan, np.inf, -np.inf]
    params = Params(arrays, gpt2.config)
    tinyxp.save(params, tmp_path)
    again = tinyxp.load(tmp_path)
    assert equal(again, params)
    assert again["blocks.0.attn.k.bias"].dtype == np.float64
    assert again["embed.weight"].dtype == np.float32


def test_saving_fails_whole(llama: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tinyxp.save(llama, tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("mine")
    before = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    numpy = tinyxp.backend("numpy")
    calls = 0

    def interrupted(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return x

    monkeypatch.setattr(numpy, "to_numpy", interrupted)
    for where in ("model", "new/folder", "new.npz"):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            tinyxp.save(llama, tmp_path / where)
        assert calls == 5
    assert {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    monkeypatch.undo()
    tinyxp.save(llama, tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == sorted(before)


def test_a_mixture_has_no_folder_and_leaves_none(tmp_path: Path) -> None:
    params = tinyxp.init(Config(norm="layer"))
    with pytest.raises(UnsupportedModelError, match="layer"):
        tinyxp.save(params, tmp_path / "model")
    assert not list(tmp_path.iterdir())
