"""Safe file access: errors that name the file, replacement that is whole or not at all, floats and their bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp.files import decode_floats, encode_floats


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
