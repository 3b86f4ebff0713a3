"""The weight cache: an entry is the GGUF's weights or it is not there, whatever happens to either file."""

from __future__ import annotations

import errno
import mmap
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError, Config, Params
from tinyxp.checkpoints import open_model, read_params, weight_cache
from tinyxp.checkpoints.weight_cache import (
    cache_folder,
    entries,
    entry_of,
    is_quantised,
    read_entry,
    write_entry,
)

from .files import Write, equal, metadata_of, to_gguf, write_quantised

CONFIG = Config(vocab_size=40, n_layers=1, d_model=32, d_ff=64, n_heads=4, n_kv_heads=2)


@pytest.fixture
def model(draw: Callable[..., Params], tmp_path: Path) -> Path:
    return write_quantised(tmp_path / "m.gguf", draw(CONFIG))


@pytest.fixture
def entry(model: Path, tmp_path: Path) -> Path:
    """The entry of ``model``, written."""
    checkpoint = open_model(model)
    found = entry_of(checkpoint, tmp_path / "cache")
    write_entry(found, checkpoint)
    return found


def kept(entry: Path) -> Params:
    found = read_entry(entry, CONFIG)
    assert found is not None
    return read_params(found)


def test_an_entry_is_what_load_gives(model: Path, entry: Path) -> None:
    assert equal(kept(entry), tinyxp.load(model))


def test_weights_stay_in_the_file(entry: Path) -> None:
    for array in kept(entry).values():
        assert isinstance(array, np.ndarray)
        assert array.ctypes.data % 64 == 0
        owner: Any = array
        while isinstance(owner, np.ndarray | memoryview):
            owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
        assert isinstance(owner, mmap.mmap)


def test_nothing_is_found_before_it_is_written(model: Path, tmp_path: Path) -> None:
    assert read_entry(entry_of(open_model(model), tmp_path / "cache"), CONFIG) is None
    assert entries(tmp_path / "cache") == {}
    assert not (tmp_path / "cache").exists()


def test_the_same_file_under_another_name_has_the_same_entry(model: Path, entry: Path) -> None:
    assert entry_of(open_model(model.rename(model.with_name("other.gguf"))), entry.parent) == entry


def test_a_changed_file_of_equal_size_and_time_has_another_entry(model: Path, entry: Path) -> None:
    before = model.stat()
    data = bytearray(model.read_bytes())
    data[-100] ^= 1  # the last bytes are padding
    model.write_bytes(data)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (model.stat().st_size, model.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    other = entry_of(open_model(model), entry.parent)
    assert other != entry
    assert read_entry(other, CONFIG) is None
    write_entry(other, open_model(model))
    assert equal(kept(other), tinyxp.load(model))
    assert not equal(kept(other), kept(entry))


def test_another_version_has_another_entry(model: Path, entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_cache, "VERSION", weight_cache.VERSION + 1)
    assert entry_of(open_model(model), entry.parent) != entry


def test_an_entry_of_another_config_is_not_believed(entry: Path) -> None:
    assert read_entry(entry, Config(vocab_size=40, n_layers=1, d_model=32, norm_eps=1e-6)) is None


def test_a_changed_byte_is_noticed_or_means_nothing(entry: Path) -> None:
    data, expected = entry.read_bytes(), kept(entry)
    directory = data.index(b"PK\x01\x02")
    positions = [*range(400), *range(400, directory, 997), *range(directory, len(data), 3)]
    missed = []
    for position in positions:
        entry.write_bytes(data[:position] + bytes([data[position] ^ 0x15]) + data[position + 1 :])
        found = read_entry(entry, CONFIG)
        missed += [position] * (found is not None)
        assert found is None or equal(read_params(found), expected), position
    assert len(missed) < len(positions) / 2  # dates, padding and the like


def test_a_changed_weight_is_noticed(entry: Path) -> None:
    with zipfile.ZipFile(entry) as archive:
        last = archive.infolist()[-1]
    data = bytearray(entry.read_bytes())
    data[data.index(b"PK\x01\x02") - last.file_size // 2] ^= 1
    entry.write_bytes(data)
    assert read_entry(entry, CONFIG) is None


@pytest.mark.parametrize("size", [0, 1, 100, 10_000, -1, -100])
def test_a_truncated_entry_is_noticed(entry: Path, size: int) -> None:
    entry.write_bytes(entry.read_bytes()[:size])
    assert read_entry(entry, CONFIG) is None


def test_a_damaged_entry_is_written_anew(model: Path, entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-1])
    write_entry(entry, open_model(model))
    assert equal(kept(entry), tinyxp.load(model))


def test_weights_in_use_outlive_their_entry(model: Path, entry: Path) -> None:
    params = kept(entry)
    write_entry(entry, open_model(model))
    entry.unlink()
    assert equal(params, tinyxp.load(model))


def test_a_full_disk_leaves_nothing(model: Path, tmp_path: Path) -> None:
    checkpoint, cache = open_model(model), tmp_path / "new" / "cache"

    def full(done: int, total: int) -> None:
        if done > total / 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_entry(entry_of(checkpoint, cache), checkpoint, full)
    assert not cache.parent.exists()


def test_a_folder_that_cannot_be_is_an_error_of_the_system(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoint = open_model(model)
    with pytest.raises(OSError, match="file"):
        write_entry(entry_of(checkpoint, tmp_path / "file" / "cache"), checkpoint)


def test_a_file_that_changes_while_it_is_read_is_not_kept(model: Path, tmp_path: Path) -> None:
    checkpoint = open_model(model)
    entry = entry_of(checkpoint, tmp_path / "cache")

    def change(done: int, total: int) -> None:
        with model.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7b")

    with pytest.raises(CheckpointError, match=r"m\.gguf: was changed while it was read"):
        write_entry(entry, checkpoint, change)
    assert entries(tmp_path / "cache") == {}


def test_writers_at_the_same_time_do_not_meet(model: Path, tmp_path: Path) -> None:
    checkpoint = open_model(model)
    entry = entry_of(checkpoint, tmp_path / "cache")
    seen: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        if not seen:  # the second writer begins and ends while the first is at work
            seen.append(done)
            write_entry(entry, open_model(model))
            assert equal(kept(entry), tinyxp.load(model))
            assert len(entries(entry.parent)) == 2

    write_entry(entry, checkpoint, meanwhile)
    assert seen
    assert equal(kept(entry), tinyxp.load(model))
    assert list(entries(entry.parent)) == [entry]


def test_plain_files_need_no_entry(
    write_gguf: Write, draw: Callable[..., Params], model: Path, tmp_path: Path
) -> None:
    plain = draw(CONFIG)
    path = write_gguf(tmp_path / "p.gguf", "llama", metadata_of(CONFIG, "llama"), to_gguf(plain, "llama"))
    assert not is_quantised(open_model(path))
    assert is_quantised(open_model(model))


def test_load_keeps_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYXP_CACHE", str(tmp_path / "cache"))
    tinyxp.load(model)
    assert not (tmp_path / "cache").exists()


def test_entries_are_only_what_the_cache_wrote(entry: Path) -> None:
    left = entry.with_name(f".{entry.name}.0123abcd.tmp")
    for path in (left, entry.with_name("mine.npz"), entry.with_name(f"{entry.name}.bak")):
        path.write_bytes(b"abc")
    assert entries(entry.parent) == {entry: entry.stat().st_size, left: 3}


def test_the_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TINYXP_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("TINYXP_CACHE", "~/own")
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("TINYXP_CACHE", "")
    assert cache_folder() is None
    monkeypatch.delenv("TINYXP_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "tinyxp"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "tinyxp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "tinyxp"


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINYXP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OSError, match="home directory"):
        cache_folder()
