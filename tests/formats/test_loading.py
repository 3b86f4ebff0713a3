"""Loading weights: dtypes, libraries, progress, mapped files, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.formats import convert, load_config


@pytest.mark.parametrize("format", ["model", "model.npz"])
def test_every_library_and_dtype(llama: Params, backend: tinyxp.Backend, format: str, tmp_path: Path) -> None:
    tinyxp.save(llama, tmp_path / format)
    loaded = tinyxp.load(tmp_path / format, xp=backend.xp, device=backend.devices()[0])
    assert loaded.xp is backend.xp
    assert all(np.array_equal(backend.to_numpy(loaded[name]), llama[name]) for name in llama)
    for dtype in backend.dtypes():
        assert tinyxp.load(tmp_path / format, xp=backend.xp, dtype=dtype).dtype == backend.dtype(dtype)


def test_a_dtype_that_the_library_lacks(folder: Path, llama: Params) -> None:
    with pytest.raises(ValueError, match="bfloat16"):
        tinyxp.load(folder, dtype="bfloat16")
    with pytest.raises(ValueError, match="int8"):
        tinyxp.load(folder, dtype="int8")


def test_a_dtype_that_jax_lacks_by_default(folder: Path, llama: Params) -> None:
    jnp = pytest.importorskip("jax.numpy")
    tinyxp.save(llama.to(dtype="float64"), folder)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tinyxp.load(folder, xp=jnp)
    assert tinyxp.load(folder, xp=jnp, dtype="float32").dtype == jnp.float32


def test_progress(folder: Path, llama: Params, tmp_path: Path) -> None:
    total = sum(x.nbytes for x in llama.values())
    for call in (
        lambda progress: tinyxp.load(folder, progress=progress),
        lambda progress: convert(folder, tmp_path / "new.npz", progress=progress),
        lambda progress: convert(folder, tmp_path / "new", progress=progress),
    ):
        calls: list[tuple[int, int]] = []
        call(lambda done, total, calls=calls: calls.append((done, total)))
        assert calls == sorted(set(calls))
        assert calls[-1] == (total, total)
        assert len(calls) == len(llama)


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
    params["embed.weight"][0, 0] = 7.0  # a private page: the file stays as it is
    assert tinyxp.load(tmp_path)["embed.weight"][0, 0] != 7.0
