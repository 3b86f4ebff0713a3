"""The reader of GGUF headers: values of every type, and headers that lie."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError
from tinyxp.files import map_file
from tinyxp.formats.gguf_header import read_header

from .files import write_gguf


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


HEAD = b"GGUF" + struct.pack("<I", 3)
ONE_PAIR = HEAD + struct.pack("<QQ", 0, 1)
ONE_TENSOR = HEAD + struct.pack("<QQ", 1, 0)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"GGML" + bytes(60), "not a GGUF file"),
        (b"GGUF", "claims 4 bytes"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian"),
        (HEAD + struct.pack("<QQ", 2**60, 0) + bytes(60), "twice|claims"),
        (HEAD + struct.pack("<QQ", 0, 2**63) + bytes(60), "twice|claims"),
        (ONE_PAIR + struct.pack("<Q", 2**62), "claims"),
        # An array of 2**61 numbers keeps GGUFReader busy for ever.
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 4, 2**61), "claims a list"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 8, 2**61), "claims a list"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 4, 2**20), "claims 4,194,304"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 8, 2**20), "claims 8 bytes"),
        (ONE_PAIR + string("a") + struct.pack("<IIQ", 9, 9, 1), "type 9"),
        (ONE_PAIR + string("a") + struct.pack("<I", 99), "key 'a' has a value of type 99"),
        (ONE_PAIR + string("a\n") + struct.pack("<I", 99), r"'a\\n'"),
        (ONE_TENSOR + string("t") + struct.pack("<I", 2**31), "dimensions"),
        (ONE_TENSOR + string("t") + struct.pack("<I4QIQ", 4, *[2**40] * 4, 0, 0), "shape"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 2**50, 0, 0), "truncated"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 4, 77, 0), "ggml type 77"),
        (ONE_TENSOR + string("t") + struct.pack("<IQIQ", 1, 4, 2, 0), "blocks of 32"),
        (ONE_PAIR + string("general.alignment") + struct.pack("<II", 4, 0), "alignment"),
        (ONE_PAIR + struct.pack("<Q", 1) + b"\xff" + struct.pack("<II", 4, 0), "UTF-8"),
    ],
)
def test_hostile_headers(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=says) as caught:
        tinyxp.load(path)
    assert str(path) in str(caught.value)


def test_lists_of_strings_are_read_when_asked_for(tmp_path: Path) -> None:
    values = {"b": True, "i": 7, "f": 0.5, "s": "é", "l": ["x", ""], "n": [1, -2], "g": [0.5]}
    path = write_gguf(tmp_path / "m.gguf", "llama", values, {"a": np.ones((2, 3), np.float32)})
    expected = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in values.items()}}
    header = read_header(map_file(path), string_lists=True)
    assert header.metadata == expected
    assert [type(value) for value in header.metadata.values()] == [type(value) for value in expected.values()]
    assert header.tensors["a"].shape == (2, 3)
    del expected["llama.l"]
    assert read_header(map_file(path)) == (expected, header.tensors)


def test_tensors_that_overlap(tmp_path: Path) -> None:
    tensors = b"".join(string(name) + struct.pack("<IQIQ", 1, 8, 0, at) for name, at in (("a", 0), ("b", 16)))
    (tmp_path / "m.gguf").write_bytes(HEAD + struct.pack("<QQ", 2, 0) + tensors + bytes(256))
    with pytest.raises(CheckpointError, match=r"tensor b starts at byte .* inside a"):
        tinyxp.load(tmp_path / "m.gguf")
