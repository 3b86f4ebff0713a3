"""Hugging Face folders that we read: prefixes, buffers, heads, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.formats import describe

from .files import MODELS, SIZES, draw, edit, equal, set_config, tensors_of


def test_gpt2_without_prefix_and_with_its_buffers(gpt2: Params, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tinyxp.save(gpt2, tmp_path)
    tensors = {name.removeprefix("transformer."): x for name, x in tensors_of(tmp_path).items()}
    for i in range(2):
        tensors[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 32, 32), np.uint8))
        tensors[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    assert equal(tinyxp.load(tmp_path), gpt2)
    steps = {info.name: info.steps for info in describe(tmp_path)}
    assert steps["h.0.attn.bias"] == ("skipped: buffer",)
    assert steps["h.0.attn.c_attn.bias"] == ("split in 3",)
    assert steps["h.0.attn.c_attn.weight"] == ("transposed", "split in 3")

    edit(tmp_path, lambda t: t.update({"h.0.attn.other_bias": np.zeros(3, np.float32)}))
    with pytest.raises(CheckpointError, match=r"unknown h\.0\.attn\.other_bias"):
        tinyxp.load(tmp_path)


def test_llama_without_prefix_and_with_its_buffers(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tied = draw(Config(**SIZES, tie_embeddings=True))
    tinyxp.save(tied, tmp_path)
    tensors = {name.removeprefix("model."): x for name, x in tensors_of(tmp_path).items()}
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(3, np.float32)
    tensors["rotary_emb.inv_freq"] = np.zeros(3, np.float32)
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    assert equal(tinyxp.load(tmp_path), tied)


def test_missing_unknown_and_misshapen_tensors(llama: Params, tmp_path: Path) -> None:
    tinyxp.save(llama, tmp_path)
    shutil.copytree(tmp_path, tmp_path / "shape")

    def rename(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.layers.1.mlp.up.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")
        del tensors["model.norm.weight"]

    edit(tmp_path, rename)
    with pytest.raises(CheckpointError) as caught:
        tinyxp.load(tmp_path)
    assert "missing model.norm.weight, model.layers.1.mlp.up_proj.weight" in str(caught.value)
    assert "unknown model.layers.1.mlp.up.weight" in str(caught.value)
    assert str(tmp_path / "model.safetensors") in str(caught.value)

    name = "model.layers.0.self_attn.k_proj.weight"
    edit(tmp_path / "shape", lambda t: t.update({name: np.zeros((24, 12), np.float32)}))
    with pytest.raises(
        CheckpointError, match=re.escape(f"{name} has shape (24, 12); the config says (12, 24)")
    ):
        tinyxp.load(tmp_path / "shape")


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.bool_])
def test_integer_weights_are_rejected(llama: Params, tmp_path: Path, dtype: type) -> None:
    tinyxp.save(llama, tmp_path)
    edit(tmp_path, lambda t: t.update({"model.norm.weight": np.ones(24, dtype)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has dtype (I8|I64|U8|BOOL)"):
        tinyxp.load(tmp_path)


def test_float8_weights_are_rejected(llama: Params, tmp_path: Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    tinyxp.save(llama, tmp_path)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has dtype F8_E4M3"):
        tinyxp.load(tmp_path)


@pytest.mark.parametrize(
    "name, embedding", [("gpt2", "transformer.wte.weight"), ("llama tied", "model.embed_tokens.weight")]
)
def test_a_needless_head_must_be_the_embedding(name: str, embedding: str, tmp_path: Path) -> None:
    tied = draw(Config(**(SIZES | MODELS[name])))
    tinyxp.save(tied, tmp_path)
    edit(tmp_path, lambda t: t.update({"lm_head.weight": t[embedding].copy()}))
    assert equal(tinyxp.load(tmp_path), tied)

    def nudge(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"][-1, -1] += 1e-6

    edit(tmp_path, nudge)
    with pytest.raises(CheckpointError, match="tie_word_embeddings is true"):
        tinyxp.load(tmp_path)
    edit(tmp_path, lambda t: t.update({"lm_head.weight": np.zeros((3, 24), np.float32)}))
    with pytest.raises(CheckpointError, match="tie_word_embeddings is true"):
        tinyxp.load(tmp_path)
    set_config(tmp_path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight has shape \(3, 24\)"):
        tinyxp.load(tmp_path)


def test_an_untied_model_needs_its_head(llama: Params, tmp_path: Path) -> None:
    tinyxp.save(llama, tmp_path)
    edit(tmp_path, lambda t: t.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"no lm_head\.weight, but tie_word_embeddings is false"):
        tinyxp.load(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_never_read(llama: Params, tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    tinyxp.save(llama, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    theirs = {"model.norm.weight": torch.ones(24)}
    torch.save(theirs, tmp_path / name)
    with pytest.raises(CheckpointError, match="pickles are not read") as caught:
        tinyxp.load(tmp_path)
    with pytest.raises(CheckpointError, match="pickles are not read"):
        tinyxp.load(tmp_path / name)
    line = re.search(r'python -c "(.+)"$', str(caught.value))
    assert line is not None
    assert f"'{name}'" in line[1]
    if name != "model.pt":  # the line is the same for all, and importing torch takes seconds
        return
    subprocess.run([sys.executable, "-c", line[1]], cwd=tmp_path, check=True)
    assert tensors_of(tmp_path).keys() == theirs.keys()


def test_folders_with_nothing_usable(tmp_path: Path, llama: Params) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        tinyxp.load(tmp_path)
    tinyxp.save(llama, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"looked for model\.safetensors and model\.safetensors\.index\.json"
    ):
        tinyxp.load(tmp_path)


def test_a_config_that_claims_a_billion_layers(llama: Params, tmp_path: Path) -> None:
    tinyxp.save(llama, tmp_path)
    set_config(tmp_path, num_hidden_layers=10**12)
    with pytest.raises(CheckpointError, match="1,000,000,000,000 layers"):
        tinyxp.load(tmp_path)
