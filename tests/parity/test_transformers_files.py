"""Hugging Face folders, both ways against transformers: its models load ours, we load its shards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tests.formats.files import ARCHITECTURES, MODELS, SIZES, draw, equal, metadata_of, to_gguf, write_gguf
from tinyxp import CheckpointError, Config, Params

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")


LLAMA = draw(Config(**SIZES))


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Params:
    return draw(Config(**(SIZES | MODELS[request.param])))


def test_transformers_and_we_load_each_others_files(model: Params, tmp_path: Path) -> None:
    tinyxp.save(model, tmp_path / "ours")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values())
    assert equal(tinyxp.load(tmp_path / "ours"), model)

    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 30))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    double = model.to(dtype="float64")
    referee = tinyxp.forward(double, ids)
    # As close to the referee as float32 is in transformers' own hands; a wrong layout is off by 0.1 or more.
    cost = np.abs(expected - referee).max()
    assert cost < 1e-4
    assert np.abs(tinyxp.forward(model, ids) - referee).max() < max(4 * cost, 1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    assert equal(tinyxp.load(tmp_path / "theirs"), model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transformers_reads_our_dtypes(dtype: str, tmp_path: Path) -> None:
    tinyxp.save(LLAMA.to(torch, dtype=dtype), tmp_path)
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path).dtype == getattr(torch, dtype)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder of several shards as transformers writes them."""
    tinyxp.save(LLAMA, tmp_path / "whole")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    return tmp_path / "shards"


def test_shards(sharded: Path) -> None:
    assert equal(tinyxp.load(sharded), LLAMA)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        tinyxp.load(sharded)


def test_the_index_decides(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    places = values["weight_map"]
    first, second = sorted(set(places.values()))[:2]
    moved = next(name for name, place in places.items() if place == first)

    # A stale copy of a tensor in another shard is not looked at.
    tensors = safetensors.load_file(sharded / second)
    safetensors.save_file(tensors | {moved: np.zeros(3, np.float32)}, sharded / second)
    assert equal(tinyxp.load(sharded), LLAMA)

    safetensors.save_file(tensors | {"stray": np.zeros(3, np.float32)}, sharded / second)
    with pytest.raises(CheckpointError, match="does not name its tensors stray"):
        tinyxp.load(sharded)

    safetensors.save_file(tensors, sharded / second)
    index.write_text(json.dumps({"weight_map": places | {moved: second}}))
    with pytest.raises(CheckpointError, match=re.escape(f"{second}: lacks tensor {moved}")):
        tinyxp.load(sharded)


@pytest.mark.parametrize("place", ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", 3, "", ".."])
def test_the_index_stays_in_its_folder(sharded: Path, place: object) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": place}}))
    with pytest.raises(CheckpointError, match="weight_map names"):
        tinyxp.load(sharded)


def test_a_whole_file_goes_before_old_shards(sharded: Path) -> None:
    other = draw(Config(**(SIZES | {"vocab_size": 5})))
    tinyxp.save(other, sharded)
    assert equal(tinyxp.load(sharded), other)
    assert transformers.AutoModelForCausalLM.from_pretrained(sharded).config.vocab_size == 5


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_transformers_reads_the_same_gguf(name: str, tmp_path: Path) -> None:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    kind = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "gpt2": "GPT2Config"}[name]
    params = draw(Config(**(SIZES | ARCHITECTURES[name])))
    path = write_gguf(tmp_path / "m.gguf", name, metadata_of(params.config, name), to_gguf(params, name))
    values = params.config.to_hf()
    theirs = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values))
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=theirs)["tensors"]
    if name == "gpt2":
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    theirs.load_state_dict(tensors)
    theirs.eval()
    ids = np.arange(20)[None] % params.config.vocab_size
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    # Two float32 runs of logits of size 10; rows in the wrong order are off by 0.1 or more.
    assert np.abs(tinyxp.forward(tinyxp.load(path), ids) - expected).max() < 1e-4
