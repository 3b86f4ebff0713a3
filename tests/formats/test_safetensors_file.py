"""safetensors headers that lie."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import CheckpointError
from tinyxp.formats.checkpoint import Weight
from tinyxp.formats.safetensors_file import read_safetensors, write_safetensors


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
        (entry(shape=[1] * 33, offsets=[0, 4]), bytes(4), None, "shape"),
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


def test_tensors_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    header = {
        "late": {"dtype": "F32", "shape": [1] * 32, "data_offsets": [8, 12]},
        "early": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "nothing": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [8, 8]},
        "__metadata__": {"a": "b"},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8) + np.float32(2.5).tobytes())
    tensors = read_safetensors(path)
    assert list(tensors) == ["early", "nothing", "late"]
    assert [(x.dtype, x.kind, x.nbytes) for x in tensors.values()] == [
        ("I64", "", 8),
        ("BF16", "bfloat16", 0),
        ("F32", "float32", 4),
    ]
    assert tensors["late"].shape == (1,) * 32
    assert tensors["late"].read().item() == 2.5
    assert tensors["nothing"].read().shape == (0, 3)


def test_wide_dtypes_are_written_first_and_aligned() -> None:
    file = io.BytesIO()
    values = {"a": np.ones(3, np.float16), "b": np.full(2, 0.1), "c": np.ones(1, np.float32)}
    weights = {
        name: Weight(x.shape, x.dtype.name, lambda x=x: x)  # type: ignore[misc]
        for name, x in values.items()
    }
    write_safetensors(file, weights)
    data = file.getvalue()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    assert {name: entry["data_offsets"] for name, entry in header.items()} == {
        "b": [0, 16],
        "c": [16, 20],
        "a": [20, 26],
    }
    assert len(data) == 8 + length + 26
    assert data[8 + length : 8 + length + 16] == values["b"].tobytes()


@pytest.mark.parametrize(
    "size, message", [(7, "is 7 bytes long: not a safetensors file"), (8, "is not JSON")]
)
def test_files_without_a_header(size: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(bytes(size))
    with pytest.raises(CheckpointError, match=message):
        read_safetensors(path)
