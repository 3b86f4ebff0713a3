"""The header of a GGUF file: its metadata and the places of its tensors. Every length is checked.

Source: the GGUF specification, versions 2 and 3. gguf.GGUFReader spends seconds on a vocabulary, and a false
length can keep it busy for ever.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np

from tinyxp.errors import CheckpointError
from tinyxp.files import check_name

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_LONGEST_ARRAY = 2**24  # values; the largest vocabularies have 2**18 tokens and a few times as many merges


class Place(NamedTuple):
    """The place of a tensor in the file."""

    shape: tuple[int, ...]
    """In C order."""
    type: int
    """ggml's number of its type."""
    start: int
    """Its first byte in the file."""


class Header(NamedTuple):
    """What a GGUF file says before its numbers."""

    metadata: dict[str, Any]
    """Numbers, strings and lists of numbers; lists of strings only if requested."""
    tensors: dict[str, Place]


def read_header(data: np.ndarray, *, string_lists: bool = False) -> Header:
    """Read the header from a file's bytes.

    Lists of strings (a vocabulary and its merges) take most of the time and are read only if requested.
    Raises CheckpointError for anything but a little-endian GGUF of version 2 or 3.
    """
    return _Reader(data, string_lists).header()


class _Reader:
    """Reads one value after another."""

    def __init__(self, data: np.ndarray, string_lists: bool) -> None:
        self._data = memoryview(data.data)
        self._string_lists = string_lists
        self._offset = 0

    def header(self) -> Header:
        if bytes(self._data[:4]) != b"GGUF":
            raise CheckpointError("is not a GGUF file: it does not begin with 'GGUF'")
        self._offset = 4
        version = self._number("I")
        if version not in (2, 3):
            order = " (a big-endian file)" if version & 0xFFFF == 0 else ""
            raise CheckpointError(f"is of GGUF version {version}{order}; 2 and 3 are read")
        tensors, pairs = self._number("Q"), self._number("Q")
        metadata = self._metadata(pairs)
        places = self._places(tensors)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise CheckpointError(f"general.alignment is {alignment!r}; it must be a power of two")
        base = -(-self._offset // alignment) * alignment
        values = {key: value for key, value in metadata.items() if value is not None}
        return Header(values, {name: p._replace(start=base + p.start) for name, p in places.items()})

    def _metadata(self, pairs: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = check_name(self._string())
            if key in metadata:
                raise CheckpointError(f"has the key {key!r} twice")
            try:
                metadata[key] = self._value(self._number("I"))
            except CheckpointError as error:
                raise CheckpointError(f"key {key[:100]!r} {error}") from None
        return metadata

    def _places(self, tensors: int) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for _ in range(tensors):
            name = check_name(self._string())
            if name in places:
                raise CheckpointError(f"has the tensor {name!r} twice")
            places[name] = self._place(name)
        return places

    def _place(self, name: str) -> Place:
        dimensions = self._number("I")
        if dimensions > 4:
            raise CheckpointError(f"tensor {name} has {dimensions} dimensions; ggml has up to 4")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        if math.prod(shape) >= 2**63:
            raise CheckpointError(f"tensor {name} has shape {shape}")
        return Place(shape, self._number("I"), self._number("Q"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(self._code(kind))
        kind, length = self._number("I"), self._number("Q")
        if length > _LONGEST_ARRAY:
            raise CheckpointError(f"claims a list of {length:,} values; up to {_LONGEST_ARRAY:,} are read")
        if kind == _STRING:
            return self._strings(length)
        code = self._code(kind)
        start = self._take(length * struct.calcsize(code))
        return list(struct.unpack_from(f"<{length}{code}", self._data, start))

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise CheckpointError(f"has a value of type {kind}, which is not known")
        return _SCALARS[kind]

    def _number(self, code: str) -> Any:
        start = self._take(struct.calcsize(code))
        return struct.unpack_from(f"<{code}", self._data, start)[0]

    def _length(self) -> int:
        length: int = _LENGTH.unpack_from(self._data, self._take(8))[0]
        return length

    def _strings(self, length: int) -> list[str] | None:
        """Read strings, or skip them and return None. There may be 100,000, too many for a call each."""
        strings: list[str] | None = [] if self._string_lists else None
        data, size, offset = self._data, len(self._data), self._offset
        for _ in range(length):
            start = offset + 8
            end = start + _LENGTH.unpack_from(data, offset)[0] if start <= size else start
            if end > size:
                self._offset = offset
                self._take(self._length())  # raises, saying what is claimed and what is left
            if strings is not None:
                strings.append(self._text(start, end))
            offset = end
        self._offset = offset
        return strings

    def _string(self) -> str:
        length = self._length()
        start = self._take(length)
        return self._text(start, start + length)

    def _text(self, start: int, end: int) -> str:
        try:
            return str(self._data[start:end], "utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"has a string at byte {start} that is not UTF-8") from None

    def _take(self, size: int) -> int:
        """Advance by ``size`` bytes and return where they begin."""
        start = self._offset
        if size > len(self._data) - start:
            raise CheckpointError(
                f"claims {size:,} bytes at byte {start:,}, but {len(self._data) - start:,} are left"
            )
        self._offset += size
        return start
