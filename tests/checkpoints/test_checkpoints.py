"""The front door: which format, which library and dtype, the hub, converting, describing, and bad paths."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.checkpoints import convert, describe, load_config
from tinyxp.config import GPT2


@pytest.fixture
def params(draw: Callable[..., Params], sizes: dict[str, Any]) -> Params:
    return draw(Config(**sizes))


@pytest.fixture
def folder(params: Params, tmp_path: Path) -> Path:
    tinyxp.save(params, tmp_path / "model")
    return tmp_path / "model"


def equal(a: Params, b: Params) -> bool:
    return a.config == b.config and all(np.array_equal(a[name], b[name]) for name in a)


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
    import jax.numpy as jnp

    with pytest.raises(ValueError, match="bfloat16"):
        tinyxp.load(folder, dtype="bfloat16")
    with pytest.raises(ValueError, match="int8"):
        tinyxp.load(folder, dtype="int8")
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


def test_describe_is_what_load_does(
    draw: Callable[..., Params], sizes: dict[str, Any], tmp_path: Path
) -> None:
    tinyxp.save(draw(Config(**(sizes | GPT2 | {"n_kv_heads": 4}))), tmp_path)
    fused = next(info for info in describe(tmp_path) if info.name == "transformer.h.1.attn.c_attn.weight")
    assert fused.ours == tuple(f"blocks.1.attn.{x}.weight" for x in "qkv")
    assert fused.shape == (24, 72)
    assert fused.steps == ("transposed", "split in 3")


def test_convert_keeps_dtypes_tokenizer_and_special_ids(folder: Path, params: Params, tmp_path: Path) -> None:
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
    import huggingface_hub

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


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "flip", "cut", "put", "end"]),
        st.one_of(st.integers(0, 300), st.integers(0, 1 << 16)),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=4,
)


def corrupt(data: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    found = bytearray(data)
    for kind, at, new in edits:
        at %= len(found) or 1
        if kind == "end":  # an archive's directory lies at its end
            kind, at = "set", max(len(found) - at % 2000 - 1, 0)
        if kind == "set":
            found[at : at + len(new)] = new
        elif kind == "flip" and found:
            found[at] ^= new[0]
        elif kind == "cut":
            del found[at : at + 16 * len(new) ** 2]
        else:
            found[at:at] = new
    return bytes(found)


GGUF_NAMES = [
    ("token_embd.weight", "embed.weight"),
    ("output_norm.weight", "final_norm.weight"),
    ("output.weight", "head.weight"),
    ("blk.0.attn_norm.weight", "blocks.0.attn_norm.weight"),
    ("blk.0.attn_q.weight", "blocks.0.attn.q.weight"),
    ("blk.0.attn_k.weight", "blocks.0.attn.k.weight"),
    ("blk.0.attn_v.weight", "blocks.0.attn.v.weight"),
    ("blk.0.attn_output.weight", "blocks.0.attn.o.weight"),
    ("blk.0.ffn_norm.weight", "blocks.0.mlp_norm.weight"),
    ("blk.0.ffn_gate.weight", "blocks.0.mlp.gate.weight"),
    ("blk.0.ffn_up.weight", "blocks.0.mlp.up.weight"),
    ("blk.0.ffn_down.weight", "blocks.0.mlp.down.weight"),
]
GGUF_METADATA = {
    "embedding_length": 8,
    "block_count": 1,
    "context_length": 4,
    "feed_forward_length": 4,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": list("abcdefg"),
}


@pytest.fixture(scope="session")
def victims(
    draw: Callable[..., Params], write_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path, bytes]]:
    """Format -> what is loaded, the file that is corrupted, its bytes."""
    home = tmp_path_factory.mktemp("victims")
    params = draw(Config(vocab_size=7, n_layers=1, d_model=8, d_ff=4, n_heads=2, n_kv_heads=1, max_seq_len=4))
    tinyxp.save(params, home / "config")
    tinyxp.save(params, home / "weights")
    tinyxp.save(params, home / "index")
    names = [info.name for info in describe(home / "index")]
    (home / "index" / "model.safetensors").rename(home / "index" / "one.safetensors")
    index = json.dumps({"weight_map": dict.fromkeys(names, "one.safetensors")})
    (home / "index" / "model.safetensors.index.json").write_text(index)
    tinyxp.save(params, home / "m.npz")
    head = np.array([8, 4, 1, 2, 1, 7, 4], "<i4").tobytes()
    (home / "m.bin").write_bytes(head + bytes(4 * (56 + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 32 + 8 + 16)))
    tensors = {theirs: params[ours] for theirs, ours in GGUF_NAMES}
    write_gguf(home / "m.gguf", "llama", GGUF_METADATA, tensors)
    found = {
        "config": (home / "config", home / "config" / "config.json"),
        "weights": (home / "weights", home / "weights" / "model.safetensors"),
        "index": (home / "index", home / "index" / "model.safetensors.index.json"),
        **{suffix: (home / f"m.{suffix}", home / f"m.{suffix}") for suffix in ("npz", "bin", "gguf")},
    }
    for path, _ in found.values():
        assert tinyxp.load(path).config == params.config or path.suffix == ".bin"
    return {name: (path, file, file.read_bytes()) for name, (path, file) in found.items()}


@pytest.mark.parametrize("name", ["config", "weights", "index", "npz", "bin", "gguf"])
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_corrupt_files_load_or_raise_one_error(
    name: str, victims: dict[str, tuple[Path, Path, bytes]], edits: list[tuple[str, int, bytes]]
) -> None:
    path, file, data = victims[name]
    file.write_bytes(corrupt(data, edits))
    start = time.process_time()
    try:
        params = tinyxp.load(path)
        message = f"{file.parent} gave {params}"
        assert sum(x.nbytes for x in params.values()) <= 2 * len(data) + 10_000
    except ValueError as error:  # CheckpointError and UnsupportedModelError among them
        message = str(error)
    finally:
        file.write_bytes(data)
    assert time.process_time() - start < 1.0
    assert str(file.parent) in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["weights", "npz", "bin", "gguf"])
def test_every_truncation_is_noticed(name: str, victims: dict[str, tuple[Path, Path, bytes]]) -> None:
    path, file, data = victims[name]
    for length in range(0, len(data), max(len(data) // 200, 1)):
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            tinyxp.load(path)
    file.write_bytes(data)


def test_safetensors_headers_that_lie(folder: Path) -> None:
    def write(header: object, body: bytes = b"", length: int | None = None) -> None:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        size = len(text) if length is None else length
        (folder / "model.safetensors").write_bytes(size.to_bytes(8, "little") + text + body)

    def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
        return {"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}

    huge = 2**62
    cases: list[tuple[Any, bytes, int | None, str]] = [
        ({}, b"", 2**63, "claims a header"),
        ({}, b"", 50, "claims a header"),
        (b"{", b"", None, "not JSON"),
        (b"[]", b"", None, "list"),
        (b'{"a": 1, "a": 1}', b"", None, "twice"),
        (b"[" * 100_000, b"", None, ""),
        ({"t": 3}, b"", None, "not described"),
        ({"__metadata__": 3}, b"", None, "__metadata__"),
        (entry(dtype="F5"), bytes(8), None, "dtype 'F5'"),
        (entry(dtype=["F32"]), bytes(8), None, "dtype"),
        (entry(shape=[-2]), bytes(8), None, "shape"),
        (entry(shape=[True, 2]), bytes(8), None, "shape"),
        (entry(shape="2"), bytes(8), None, "shape"),
        (entry(shape=[1] * 100), bytes(4), None, "shape"),
        (entry(offsets=[0, 4]), bytes(8), None, "data_offsets"),
        (entry(offsets=[8, 0]), bytes(8), None, "data_offsets"),
        ({"a\n\x1b[2J": entry()["t"]}, bytes(8), None, r"'a\n\x1b[2J'"),
        (entry(offsets=[0]), bytes(8), None, "data_offsets"),
        (entry(offsets=[4, 12]), bytes(12), None, "starts at byte 4"),
        (entry(), bytes(7), None, "there are 7"),
        (entry(), bytes(9), None, "there are 9"),
        (entry(shape=[huge], offsets=[0, 4 * huge - 1]), bytes(8), None, "data_offsets"),
        (entry(shape=[huge // 8], offsets=[0, huge // 2]), bytes(8), None, "there are 8"),
        (entry() | {"u": entry()["t"]}, bytes(8), None, "starts at byte 0"),
    ]
    for header, body, length, words in cases:
        write(header, body, length)
        with pytest.raises(CheckpointError) as caught:
            tinyxp.load(folder)
        assert words in str(caught.value)
        assert str(folder / "model.safetensors") in str(caught.value)


def test_a_gguf_does_not_take_a_tokenizer_that_stands_beside_it(smollm2_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to(smollm2_gguf)
    (tmp_path / "tokenizer.json").write_text("another model's")
    convert(tmp_path / "m.gguf", tmp_path / "converted")
    assert {p.name for p in (tmp_path / "converted").iterdir()} == {"config.json", "model.safetensors"}
