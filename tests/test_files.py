"""Safe file access: errors that name the file, files replaced whole or not at all, floats and bytes."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from tinyxp import CheckpointError, UnsupportedModelError
from tinyxp.files import (
    check_name,
    decode_floats,
    encode_floats,
    exists,
    file_size,
    make_folder,
    map_file,
    name_in_errors,
    parse_json,
    pickle_error,
    read_bytes,
    read_json,
    replacing,
)


@pytest.mark.parametrize(
    "error, kind, message",
    [
        (CheckpointError("is bad"), CheckpointError, "a/b: is bad"),
        (UnsupportedModelError("is odd"), UnsupportedModelError, "a/b: is odd"),
        (PermissionError(13, "Permission denied"), CheckpointError, "a/b: cannot be read: Permission denied"),
        (OSError("gone"), CheckpointError, "a/b: cannot be read: gone"),
        (ValueError("wrong"), CheckpointError, "a/b: wrong"),
        (OverflowError("large"), CheckpointError, "a/b: large"),
        (RecursionError("deep"), CheckpointError, "a/b: deep"),
        (struct.error("short"), CheckpointError, "a/b: short"),
    ],
)
def test_errors_name_the_file(error: Exception, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught, name_in_errors(Path("a/b")):
        raise error
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_other_errors_pass() -> None:
    with pytest.raises(KeyboardInterrupt), name_in_errors(Path("a")):
        raise KeyboardInterrupt
    with pytest.raises(KeyError), name_in_errors(Path("a")):
        raise KeyError("x")


def test_exists(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert exists(tmp_path)
    assert exists(tmp_path / "file")
    assert not exists(tmp_path / "other")
    assert not exists(tmp_path / "file" / "below")
    with pytest.raises(CheckpointError, match="cannot be read"):
        exists(tmp_path / ("x" * 5000))


def test_sizes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert file_size(path) == 3
    with pytest.raises(CheckpointError, match="^is a folder, not a file$"):
        file_size(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="^is empty$"):
        file_size(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="^is not a regular file$"):
        file_size(tmp_path / "pipe")


def test_a_mapped_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    data = map_file(path)
    assert data.tobytes() == b"abc"
    assert type(data) is np.ndarray
    data[0] = 0
    assert path.read_bytes() == b"abc"


def test_a_limit_is_the_last_size_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"{}  ")
    assert read_bytes(path, 4) == b"{}  "
    assert read_json(path, 4) == {}
    with pytest.raises(CheckpointError, match="^is 4 bytes long; the limit is 3$"):
        read_bytes(path, 3)
    with pytest.raises(CheckpointError, match="file: is 4 bytes long; the limit is 3$"):
        read_json(path, 3)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"[1]", "holds a JSON list, not an object"),
        (b"{", "is not JSON: "),
        (b"\xff", "is not JSON: "),
        (b"[" * 100_000, "is not JSON: "),
        (b'{"x": {"a": 1, "b": 2, "a": 3}}', "has the key 'a' twice"),
        (b'{"' + b"k" * 200 + b'": 1, "' + b"k" * 200 + b'": 2}', f"has the key '{'k' * 100}' twice"),
    ],
)
def test_what_is_no_object(data: bytes, message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_json(data)
    assert str(caught.value).startswith(message)


def test_names_are_printable() -> None:
    assert check_name("a b.é") == "a b.é"
    with pytest.raises(CheckpointError, match=r"^has the name 'a\\n', which is not printable$"):
        check_name("a\n")


def test_a_pickle_is_named_with_a_way_out() -> None:
    message = str(pickle_error(Path("models/old.pt")))
    assert message.startswith("models/old.pt: pickles are not read")
    assert "torch.load('old.pt', weights_only=True" in message


def test_replacing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_replaced_on_an_error(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_only_files_are_replaced(tmp_path: Path) -> None:
    for path in (tmp_path, Path()):
        with pytest.raises(ValueError, match="is not a regular file"), replacing(path):
            pytest.fail("opened")


@pytest.mark.parametrize("name", [None, "other"])
def test_a_full_disk_names_the_file(name: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(OSError, match="No space") as caught, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device", name)
    assert caught.value.filename == (name or str(path))
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "no" / "file"):
        pytest.fail("opened")
    assert caught.value.filename == str(tmp_path / "no" / "file")


def test_make_folder(tmp_path: Path) -> None:
    with make_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(ValueError, match="no"), make_folder(tmp_path / "a" / "c" / "d"):
        raise ValueError("no")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]

    def fail() -> None:
        with make_folder(tmp_path / "e"):
            (tmp_path / "e" / "mine").write_text("stays")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert (tmp_path / "e" / "mine").read_text() == "stays"


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
