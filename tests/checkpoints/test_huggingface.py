"""Hugging Face folders, both ways against transformers; shards, dtypes, heads, buffers, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import tinyxp
from tinyxp import CheckpointError, Config, Params, UnsupportedModelError
from tinyxp.checkpoints import describe
from tinyxp.checkpoints.files import floats, stored
from tinyxp.config import GPT2, RopeScaling

LLAMA3 = RopeScaling(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16
)
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2 | {"n_kv_heads": 4},
    "gpt2 untied": GPT2 | {"n_kv_heads": 4, "tie_embeddings": False},
    "gpt2 erf": GPT2 | {"n_kv_heads": 4, "mlp": "gelu"},
    "llama": {},
    "llama tied": {"tie_embeddings": True},
    "llama biases": {"attn_bias": True, "attn_out_bias": True, "mlp_bias": True},
    "llama wide heads": {"head_dim": 10, "n_kv_heads": 1},
    "llama3 scaling": {"rope_scaling": LLAMA3},
    "linear scaling": {"rope_scaling": RopeScaling(rope_type="linear", factor=4.0)},
    "qwen2": {"attn_bias": True, "tie_embeddings": True, "rope_theta": 1e6, "norm_eps": 1e-6},
    "qwen2 wide heads": {"attn_bias": True, "head_dim": 8},
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, draw: Callable[..., Params], sizes: dict[str, Any]) -> Params:
    return draw(Config(**(sizes | MODELS[request.param])))


@pytest.fixture
def llama(draw: Callable[..., Params], sizes: dict[str, Any]) -> Params:
    return draw(Config(**sizes))


@pytest.fixture
def gpt2(draw: Callable[..., Params], sizes: dict[str, Any]) -> Params:
    return draw(Config(**(sizes | MODELS["gpt2"])))


def equal(a: Params, b: Params) -> bool:
    return a.config == b.config and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / "model.safetensors")


def edit(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = {name: x.copy() for name, x in tensors_of(folder).items()}
    change(tensors)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def set_config(folder: Path, **keys: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | keys))


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


def test_dtypes_are_kept(llama: Params, backend: tinyxp.Backend, tmp_path: Path) -> None:
    for dtype in backend.dtypes():
        params = llama.to(backend.xp, dtype=dtype)
        tinyxp.save(params, tmp_path / dtype)
        again = tinyxp.load(tmp_path / dtype, xp=backend.xp)
        for name in params:
            assert again[name].dtype == params[name].dtype
            assert np.array_equal(backend.to_numpy(again[name]), backend.to_numpy(params[name]))
    with torch.no_grad():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "float32")
    assert theirs.dtype == torch.float32


def test_bfloat16_on_numpy_is_float32_of_the_same_values(llama: Params, tmp_path: Path) -> None:
    rounded = llama.to(torch, dtype="bfloat16")
    tinyxp.save(rounded, tmp_path)
    header = (tmp_path / "model.safetensors").read_bytes()
    assert b'"BF16"' in header
    assert b'"F32"' not in header
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path).dtype == torch.bfloat16
    for name, x in tinyxp.load(tmp_path).items():
        assert x.dtype == np.float32
        assert np.array_equal(x, rounded[name].float().numpy())
    assert tinyxp.load(tmp_path, xp=torch)["embed.weight"].dtype == torch.bfloat16
    assert tinyxp.load(tmp_path, xp=torch, dtype="float64")["embed.weight"].dtype == torch.float64


def test_bfloat16_bits() -> None:
    bits = np.array([0x3F80, 0xC049, 0x4800, 0x7F80, 0x0001], "<u2").view(np.uint8)
    assert floats(bits, 0, "bfloat16", (5,)).tolist() == [1.0, -3.140625, 131072.0, float("inf"), 2.0**-133]
    assert floats(bits, 2, "bfloat16", (2, 1)).tolist() == [[-3.140625], [131072.0]]
    every = np.arange(65536, dtype="<u2")
    assert np.array_equal(stored(floats(every.view(np.uint8), 0, "bfloat16", (65536,)), "bfloat16"), every)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_stored_floats_come_back(kind: str, offset: int) -> None:
    values = np.arange(-3, 3).reshape(2, 3).T.astype(kind)
    data = np.frombuffer(bytearray(bytes(offset) + stored(values, kind).tobytes()), np.uint8)
    found = floats(data, offset, kind, (3, 2))
    assert found.dtype == np.dtype(kind)
    assert np.array_equal(found, values)
    assert np.shares_memory(found, data) == (offset != 1)


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


def test_plain_weights_stay_in_the_file(tmp_path: Path) -> None:
    import tracemalloc

    config = Config(vocab_size=4096, d_model=256, d_ff=512, n_layers=2)
    tinyxp.save(tinyxp.init(config), tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size > 9_000_000
    tracemalloc.start()
    params = tinyxp.load(tmp_path)
    tinyxp.save(params, tmp_path / "again")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 5
    params["embed.weight"][0, 0] = 7.0  # a private page: the file does not hear of it
    assert tinyxp.load(tmp_path)["embed.weight"][0, 0] != 7.0


def test_gpt2_without_prefix_and_with_its_buffers(gpt2: Params, tmp_path: Path) -> None:
    tinyxp.save(gpt2, tmp_path)
    tensors = {name.removeprefix("transformer."): x for name, x in tensors_of(tmp_path).items()}
    for i in range(2):
        tensors[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 32, 32), np.uint8))
        tensors[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    assert equal(tinyxp.load(tmp_path), gpt2)
    steps = {info.name: info.steps for info in describe(tmp_path)}
    assert steps["h.0.attn.bias"] == ("skipped: buffer",)
    assert steps["h.0.attn.c_attn.bias"] == ("split in 3",)
    assert steps["h.0.attn.c_attn.weight"] == ("transposed", "split in 3")

    edit(tmp_path, lambda t: t.update({"h.0.attn.other_bias": np.zeros(3, np.float32)}))
    with pytest.raises(CheckpointError, match=r"unknown h\.0\.attn\.other_bias"):
        tinyxp.load(tmp_path)


def test_llama_without_prefix_and_with_its_buffers(
    draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    tied = draw(Config(**sizes, tie_embeddings=True))
    tinyxp.save(tied, tmp_path)
    tensors = {name.removeprefix("model."): x for name, x in tensors_of(tmp_path).items()}
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(3, np.float32)
    tensors["rotary_emb.inv_freq"] = np.zeros(3, np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
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
def test_integer_weights_are_refused(llama: Params, tmp_path: Path, dtype: type) -> None:
    tinyxp.save(llama, tmp_path)
    edit(tmp_path, lambda t: t.update({"model.norm.weight": np.ones(24, dtype)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has dtype (I8|I64|U8|BOOL)"):
        tinyxp.load(tmp_path)


def test_float8_weights_are_refused(llama: Params, tmp_path: Path) -> None:
    import safetensors.torch

    tinyxp.save(llama, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has dtype F8_E4M3"):
        tinyxp.load(tmp_path)


@pytest.mark.parametrize(
    "name, embedding", [("gpt2", "transformer.wte.weight"), ("llama tied", "model.embed_tokens.weight")]
)
def test_a_needless_head_must_be_the_embedding(
    name: str, embedding: str, draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    tied = draw(Config(**(sizes | MODELS[name])))
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


@pytest.fixture
def sharded(llama: Params, tmp_path: Path) -> Path:
    """A folder of several shards as transformers writes them."""
    tinyxp.save(llama, tmp_path / "whole")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    return tmp_path / "shards"


def test_shards(sharded: Path, llama: Params) -> None:
    assert equal(tinyxp.load(sharded), llama)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        tinyxp.load(sharded)


def test_the_index_decides(sharded: Path, llama: Params) -> None:
    index = sharded / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    places = values["weight_map"]
    first, second = sorted(set(places.values()))[:2]
    moved = next(name for name, place in places.items() if place == first)

    # A stale copy of a tensor in another shard is not looked at.
    tensors = safetensors.numpy.load_file(sharded / second)
    safetensors.numpy.save_file(tensors | {moved: np.zeros(3, np.float32)}, sharded / second)
    assert equal(tinyxp.load(sharded), llama)

    safetensors.numpy.save_file(tensors | {"stray": np.zeros(3, np.float32)}, sharded / second)
    with pytest.raises(CheckpointError, match="does not name its tensors stray"):
        tinyxp.load(sharded)

    safetensors.numpy.save_file(tensors, sharded / second)
    index.write_text(json.dumps({"weight_map": places | {moved: second}}))
    with pytest.raises(CheckpointError, match=re.escape(f"{second}: lacks tensor {moved}")):
        tinyxp.load(sharded)


@pytest.mark.parametrize("place", ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", 3, "", ".."])
def test_the_index_stays_in_its_folder(sharded: Path, place: object) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": place}}))
    with pytest.raises(CheckpointError, match="weight_map names"):
        tinyxp.load(sharded)


def test_a_whole_file_goes_before_old_shards(
    sharded: Path, draw: Callable[..., Params], sizes: dict[str, Any]
) -> None:
    other = draw(Config(**(sizes | {"vocab_size": 5})))
    tinyxp.save(other, sharded)
    assert equal(tinyxp.load(sharded), other)
    assert transformers.AutoModelForCausalLM.from_pretrained(sharded).config.vocab_size == 5


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_never_read(llama: Params, tmp_path: Path, name: str) -> None:
    tinyxp.save(llama, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    theirs = {"model.norm.weight": torch.ones(24)}
    torch.save(theirs, tmp_path / name)
    with pytest.raises(CheckpointError, match="pickles are not read") as caught:
        tinyxp.load(tmp_path)
    with pytest.raises(CheckpointError, match="pickles are not read"):
        tinyxp.load(tmp_path / name)
    # The line that the message gives works.
    line = re.search(r'python -c "(.+)"$', str(caught.value))
    assert line is not None
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


def test_real_models(test_data: Path) -> None:
    story = tinyxp.load(test_data / "stories260k")
    assert sum(x.size for x in story.values()) == 260_032
    expected = np.load(test_data / "stories260k" / "stories260K_logits_bos100_f32.npy")
    ids = json.loads((test_data / "stories260k" / "reference.json").read_text())["greedy_ids_from_bos"]
    logits = tinyxp.forward(story, [ids[: len(expected)]])[0]
    assert np.abs(logits - expected).max() < 1e-4

    nano = tinyxp.load(test_data / "gpt-nano-sort")
    partials = np.load(test_data / "gpt-nano-sort" / "gpt_nano_sort_partials.npz")
    assert nano.config.mlp == "gelu_tanh"
    logits = tinyxp.forward(nano, partials["idx"].astype(np.int64))
    assert np.abs(logits - partials["lm_head"]).max() < 1e-4
