"""safetensors headers that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tinyxp
from tinyxp import CheckpointError


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
