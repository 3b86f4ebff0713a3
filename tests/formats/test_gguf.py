"""GGUF: small files of the gguf package's own writer, and transformers' reader of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.formats import describe, load_config

from .files import ARCHITECTURES, SIZES, draw, equal, interleaved, metadata_of, to_gguf, write_gguf


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str, tmp_path: Path) -> None:
    architecture = name.split()[0]
    params = draw(Config(**(SIZES | ARCHITECTURES[name])))
    metadata = metadata_of(params.config, architecture)
    path = write_gguf(tmp_path / "m.gguf", architecture, metadata, to_gguf(params, architecture))
    loaded = tinyxp.load(path)
    assert loaded.config == params.config
    assert equal(loaded, params)
    assert load_config(path) == params.config


def test_row_order_by_hand() -> None:
    assert interleaved(np.arange(8), 8).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_quantised_weights_and_what_is_said_of_them(tmp_path: Path) -> None:
    config = Config(vocab_size=5, n_layers=1, d_model=32, d_ff=64, n_heads=4, n_kv_heads=2)
    params = draw(config)
    tensors: dict[str, Any] = to_gguf(params, "llama")
    kinds = {
        "blk.0.ffn_up.weight": gguf.GGMLQuantizationType.Q4_1,
        "blk.0.attn_k.weight": gguf.GGMLQuantizationType.Q8_0,
        "output.weight": gguf.GGMLQuantizationType.BF16,
    }
    exact = dict(tensors)
    for name, kind in kinds.items():
        blocks = gguf.quants.quantize(tensors[name], kind)
        tensors[name], exact[name] = (blocks, kind), gguf.quants.dequantize(blocks, kind)
    tensors["token_embd.weight"] = tensors["token_embd.weight"].astype(np.float16)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(config, "llama"), tensors)
    loaded = tinyxp.load(path)
    assert {x.dtype for x in loaded.values()} == {np.dtype(np.float32)}
    # The k rows were permuted before they were quantised, block by block along the row.
    assert np.array_equal(interleaved(loaded["blocks.0.attn.k.weight"], 8), exact["blk.0.attn_k.weight"])
    assert np.array_equal(loaded["blocks.0.mlp.up.weight"], exact["blk.0.ffn_up.weight"])
    assert np.array_equal(loaded["head.weight"], exact["output.weight"])
    assert 0 < np.abs(loaded["blocks.0.mlp.up.weight"] - params["blocks.0.mlp.up.weight"]).max() < 0.1

    info = {i.name: i for i in describe(path)}
    assert info["blk.0.attn_k.weight"].steps == ("dequantised", "rows un-permuted, 2 heads")
    assert info["blk.0.attn_k.weight"].shape == (16, 32)
    assert info["blk.0.attn_k.weight"].nbytes == 16 * 34
    assert info["blk.0.attn_q.weight"].steps == ("rows un-permuted, 4 heads",)
    assert info["blk.0.ffn_up.weight"].dtype == "Q4_1"
    assert info["output.weight"].ours == ("head.weight",)


def test_plain_files_keep_their_dtypes(llama: Params, tmp_path: Path) -> None:
    tensors: dict[str, Any] = to_gguf(llama, "llama")
    for name, x in tensors.items():
        if x.ndim == 2:
            tensors[name] = x.astype(np.float16)
    bits = gguf.quants.quantize(to_gguf(llama, "llama")["output.weight"], gguf.GGMLQuantizationType.BF16)
    tensors["output.weight"] = (bits, gguf.GGMLQuantizationType.BF16)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(llama.config, "llama"), tensors)
    here = tinyxp.load(path)
    kept = ("embed.weight", "final_norm.weight", "head.weight")
    assert [here[name].dtype.name for name in kept] == ["float16", "float32", "float32"]
    torch = pytest.importorskip("torch")
    loaded = tinyxp.load(path, xp=torch)
    assert loaded["embed.weight"].dtype == torch.float16
    assert loaded["final_norm.weight"].dtype == torch.float32
    assert loaded["head.weight"].dtype == torch.bfloat16


def test_missing_unknown_and_misshapen_tensors(llama: Params, tmp_path: Path) -> None:
    metadata = metadata_of(llama.config, "llama")
    tensors = to_gguf(llama, "llama")
    for change, says in (
        ({"blk.0.attn_q.weight": None}, r"missing blk\.0\.attn_q\.weight"),
        ({"blk.0.attn_q_norm.weight": np.ones(6, np.float32)}, r"unknown blk\.0\.attn_q_norm\.weight"),
        ({"blk.0.attn_k.weight": np.ones((24, 12), np.float32)}, r"attn_k\.weight has shape \(24, 12\)"),
        ({"output_norm.weight": np.ones(24, np.int32)}, r"output_norm\.weight has dtype I32"),
        ({"token_embd.weight": None}, r"token_embd\.weight is missing"),
    ):
        changed = {name: x for name, x in (tensors | change).items() if x is not None}
        path = write_gguf(tmp_path / "m.gguf", "llama", metadata, changed)
        with pytest.raises(CheckpointError, match=says):
            tinyxp.load(path)
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata | {"block_count": 2**31}, tensors)
    with pytest.raises(CheckpointError, match="2,147,483,648 layers"):
        tinyxp.load(path)


@pytest.mark.parametrize("architecture", ["gemma2", "qwen3", "phi3"])
def test_other_architectures(architecture: str, llama: Params, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture, {}, to_gguf(llama, "llama"))
    with pytest.raises(UnsupportedModelError, match=rf"m\.gguf: general\.architecture is '{architecture}'"):
        tinyxp.load(path)


def test_scaling_must_be_float32(llama: Params, tmp_path: Path) -> None:
    tensors = to_gguf(llama, "llama") | {"rope_freqs.weight": np.ones(3, np.float16)}
    path = write_gguf(tmp_path / "m.gguf", "llama", metadata_of(llama.config, "llama"), tensors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight has dtype F16"):
        tinyxp.load(path)
