"""The safetensors format: eight bytes of length, a JSON header, the numbers in C order.

Source: https://huggingface.co/docs/safetensors. The package's NumPy reader rejects bfloat16, and its writer
scrambles arrays that are not contiguous.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from tinyxp.dtypes import ITEMSIZE
from tinyxp.errors import CheckpointError
from tinyxp.files import check_name, decode_floats, encode_floats, map_file, name_in_errors, parse_json
from tinyxp.formats.checkpoint import KINDS, Tensor, Weight

NAMES = {kind: name for name, kind in KINDS.items()}
_NAMES_OF_BITS = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "I64 U64 F64 C64",
}
BITS = {name: bits for bits, names in _NAMES_OF_BITS.items() for name in names.split()}
HEADER_LIMIT = 100_000_000  # the package's own


class _Entry(NamedTuple):
    """What the header says of a tensor; start and stop count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Open every tensor of the file, in the order of their bytes; only the header is read.

    The header is checked against the file's size first. Raises CheckpointError naming the file and what is
    wrong.
    """
    with name_in_errors(path):
        data = map_file(path)
        if data.size < 8:
            raise CheckpointError(f"is {data.size} bytes long: not a safetensors file")
        length = int.from_bytes(data[:8].tobytes(), "little")
        if length > min(data.size - 8, HEADER_LIMIT):
            raise CheckpointError(
                f"claims a header of {length:,} bytes; {data.size - 8:,} follow: truncated or foreign"
            )
        header = parse_json(data[8 : 8 + length].tobytes())
        if not isinstance(header.pop("__metadata__", {}), dict):
            raise CheckpointError("has __metadata__ that is not an object")
        entries = {name: _parse_entry(check_name(name), entry) for name, entry in header.items()}
        entries = dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)))
        _check_order(entries, data.size - 8 - length)
        return {name: _tensor(data, 8 + length, entry) for name, entry in entries.items()}


def _check_order(entries: Mapping[str, _Entry], size: int) -> None:
    """Raise CheckpointError unless the tensors follow each other without a gap and fill ``size`` bytes."""
    end = 0
    for name, entry in entries.items():
        if entry.start != end:
            raise CheckpointError(
                f"tensor {name} starts at byte {entry.start:,}, but the one before ends at {end:,}"
            )
        end = entry.stop
    if end != size:
        raise CheckpointError(f"claims {end:,} bytes of tensors; there are {size:,}")


def _parse_entry(name: str, entry: Any) -> _Entry:
    """Return a tensor's entry, its dtype, shape and offsets checked against each other."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {name} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise CheckpointError(f"tensor {name} has dtype {dtype!r}, which is not known")
    if not _are_sizes(shape) or len(shape) > 32:
        raise CheckpointError(f"tensor {name} has shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"tensor {name} has data_offsets {offsets!r}")
    if (offsets[1] - offsets[0]) * 8 != math.prod(shape) * BITS[dtype]:
        raise CheckpointError(
            f"tensor {name} is {dtype} of shape {shape}, but its data_offsets are {offsets}"
        )
    return _Entry(dtype, tuple(shape), *offsets)


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(x) is int and 0 <= x < 2**63 for x in values)


def _tensor(data: np.ndarray, base: int, entry: _Entry) -> Tensor:
    kind = KINDS.get(entry.dtype, "")

    def read() -> np.ndarray:
        return decode_floats(data, base + entry.start, kind, entry.shape)

    return Tensor(entry.shape, entry.dtype, kind, entry.stop - entry.start, read)


def write_safetensors(file: IO[bytes], weights: Mapping[str, Weight]) -> None:
    """Write the tensors one after another, reading each when its turn comes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers requires it
    end = 0
    # Wide dtypes first, so that every tensor is aligned.
    ordered = sorted(weights.items(), key=lambda item: ITEMSIZE[item[1].kind], reverse=True)
    for name, weight in ordered:
        offsets = [end, end := end + weight.nbytes]
        header[name] = {"dtype": NAMES[weight.kind], "shape": weight.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, weight in ordered:
        file.write(encode_floats(weight.read(), weight.kind).data)
