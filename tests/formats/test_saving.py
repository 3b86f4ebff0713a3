"""Hugging Face folders that we write: dtypes, views, memory, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import Config, Params, UnsupportedModelError
from tinyxp.files import decode_floats, encode_floats

from .files import equal, tensors_of


def test_dtypes_are_kept(llama: Params, backend: tinyxp.Backend, tmp_path: Path) -> None:
    for dtype in backend.dtypes():
        params = llama.to(backend.xp, dtype=dtype)
        tinyxp.save(params, tmp_path / dtype)
        again = tinyxp.load(tmp_path / dtype, xp=backend.xp)
        for name in params:
            assert again[name].dtype == params[name].dtype
            assert np.array_equal(backend.to_numpy(again[name]), backend.to_numpy(params[name]))


def test_bfloat16_on_numpy_is_float32_of_the_same_values(llama: Params, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rounded = llama.to(torch, dtype="bfloat16")
    tinyxp.save(rounded, tmp_path)
    header = (tmp_path / "model.safetensors").read_bytes()
    assert b'"BF16"' in header
    assert b'"F32"' not in header
    for name, x in tinyxp.load(tmp_path).items():
        assert x.dtype == np.float32
        assert np.array_equal(x, rounded[name].float().numpy())
    assert tinyxp.load(tmp_path, xp=torch)["embed.weight"].dtype == torch.bfloat16
    assert tinyxp.load(tmp_path, xp=torch, dtype="float64")["embed.weight"].dtype == torch.float64


def test_bfloat16_bits() -> None:
    bits = np.array([0x3F80, 0xC049, 0x4800, 0x7F80, 0x0001], "<u2").view(np.uint8)
    assert decode_floats(bits, 0, "bfloat16", (5,)).tolist() == [
        1.0,
        -3.140625,
        131072.0,
        float("inf"),
        2.0**-133,
    ]
    assert decode_floats(bits, 2, "bfloat16", (2, 1)).tolist() == [[-3.140625], [131072.0]]
    every = np.arange(65536, dtype="<u2")
    assert np.array_equal(
        encode_floats(decode_floats(every.view(np.uint8), 0, "bfloat16", (65536,)), "bfloat16"), every
    )


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_stored_floats_come_back(kind: str, offset: int) -> None:
    values = np.arange(-3, 3).reshape(2, 3).T.astype(kind)
    data = np.frombuffer(bytearray(bytes(offset) + encode_floats(values, kind).tobytes()), np.uint8)
    found = decode_floats(data, offset, kind, (3, 2))
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
