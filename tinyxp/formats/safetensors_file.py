"""The safetensors format: eight bytes of length, a JSON header, the numbers in C order.

Source: https://huggingface.co/docs/safetensors. The package's NumPy reader refuses bfloat16, and its writer
scrambles arrays that are not contiguous.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tinyxp.dtypes import ITEMSIZE
from tinyxp.errors import CheckpointError
from tinyxp.files import check_name, floats, map_file, naming, parse_json, stored
from tinyxp.formats.plan import KINDS, Tensor, Weight

NAMES = {kind: name for name, kind in KINDS.items()}
_OF_BITS = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "I64 U64 F64 C64",
}
BITS = {name: bits for bits, names in _OF_BITS.items() for name in names.split()}
HEADER_LIMIT = 100_000_000  # the package's own


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of the file, in the order of their bytes; nothing but the header is read.

    The header is held against the file's size first. CheckpointError naming the file and what is wrong.
    """
    with naming(path):
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
        found = {name: _entry(check_name(name), entry) for name, entry in header.items()}
        found = dict(sorted(found.items(), key=lambda item: item[1][2:]))
        end = 0
        for name, (_, _, start, stop) in found.items():
            if start != end:
                raise CheckpointError(
                    f"tensor {name} starts at byte {start:,}, but the one before ends at {end:,}"
                )
            end = stop
        if end != data.size - 8 - length:
            raise CheckpointError(f"claims {end:,} bytes of tensors; there are {data.size - 8 - length:,}")
        return {name: _tensor(data, 8 + length, *entry) for name, entry in found.items()}


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, start and stop of a tensor, checked against each other."""
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
    return dtype, tuple(shape), offsets[0], offsets[1]


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(x) is int and 0 <= x < 2**63 for x in values)


def _tensor(data: Any, base: int, dtype: str, shape: tuple[int, ...], start: int, stop: int) -> Tensor:
    kind = KINDS.get(dtype, "")
    return Tensor(shape, dtype, kind, stop - start, lambda: floats(data, base + start, kind, shape))


def write_safetensors(file: IO[bytes], weights: Mapping[str, Weight]) -> None:
    """Writes the tensors one after another, each read when its turn comes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers asks for it
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
        file.write(stored(weight.read(), weight.kind).data)
