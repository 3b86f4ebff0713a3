"""Files of recorded traces: trace point -> array and the ids, in one .npz or .safetensors file."""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from tinyxp.doctor.traces import Recorded, check_trace
from tinyxp.errors import CheckpointError
from tinyxp.files import FILE_LIMIT, check_name, make_folder, map_file, name_in_errors, replacing
from tinyxp.formats.npz import NPY_HEADER
from tinyxp.formats.safetensors_file import read_safetensors

SUFFIXES = (".npz", ".safetensors")
_INTEGERS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}
_DESCR = re.compile(r"[<>|=](f[248]|[iu][1248]|b1)")


def write_trace(path: Path | str, points: Mapping[str, np.ndarray], *, ids: Any, mask: Any = None) -> None:
    """Write trace point -> array, ``ids`` (b, t) and, if given, ``mask`` (b, t) to one file.

    ``path`` ends in .npz or .safetensors; the file is written completely or not at all. Raise ValueError
    for another suffix, an unknown trace point, or an array whose rows or columns differ from those of ids.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: {path.suffix or 'no suffix'} is not a trace format; use .npz or .safetensors"
        )
    recorded = check_trace({name: np.asarray(x) for name, x in points.items()}, ids, mask)
    arrays = {"ids": recorded.batch.ids}
    if recorded.batch.mask is not None:
        arrays["mask"] = recorded.batch.mask
    arrays |= recorded.points
    with make_folder(path.parent), replacing(path) as file:
        if path.suffix.lower() == ".npz":
            np.savez(file, allow_pickle=False, **arrays)
        else:
            _write_safetensors(file, arrays)


def _write_safetensors(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, x in sorted(arrays.items(), key=lambda item: -item[1].itemsize):  # keeps all arrays aligned
        offsets = [end, end := end + x.nbytes]
        header[name] = {"dtype": _NAMES[x.dtype.name], "shape": x.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in header:
        file.write(np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<")).data)


def is_trace(path: Path) -> bool:
    """Return whether a file is a recorded trace, not a model: it has an entry ``ids``."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    if path.suffix.lower() == ".safetensors":
        return "ids" in read_safetensors(path)
    with name_in_errors(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return "ids.npy" in archive.namelist()
        except (zipfile.BadZipFile, NotImplementedError):
            return False


def read_trace(path: Path | str) -> Recorded:
    """Read a recorded trace. Raise CheckpointError naming the file and the problem. Nothing is executed."""
    path = Path(path)
    arrays = _read_npz(path) if path.suffix.lower() == ".npz" else _read_safetensors(path)
    with name_in_errors(path):
        if "ids" not in arrays:
            raise CheckpointError("has no entry 'ids', the token ids (b, t) that went in")
        ids, mask = arrays.pop("ids"), arrays.pop("mask", None)
        return check_trace(arrays, ids, mask)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    with name_in_errors(path):
        size = map_file(path).size  # rejects what is not a regular file, and empty files
        try:
            with zipfile.ZipFile(path) as archive:
                total = sum(info.file_size for info in archive.infolist())
                if total > max(FILE_LIMIT, 8 * size):  # weights hardly compress, zip bombs do
                    raise CheckpointError(f"unpacks from {size:,} to {total:,} bytes")
                for info in archive.infolist():
                    name = check_name(info.filename.removesuffix(".npy"))
                    if name in arrays:
                        raise CheckpointError(f"has the entry {name!r} twice")
                    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise CheckpointError(f"has the entry {name!r} in an unsupported compression")
                    arrays[name] = _array(name, archive.read(info))
        # An encrypted member raises RuntimeError.
        except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as error:
            raise CheckpointError(f"is not an .npz file: {error or 'truncated'}") from None
    return arrays


def _array(name: str, data: bytes) -> np.ndarray:
    """Return the array in the bytes of an .npy. numpy.load would allocate what the header claims."""
    start = 10 + int.from_bytes(data[8:10], "little")
    header = NPY_HEADER.fullmatch(data[10:start]) if data.startswith(b"\x93NUMPY\x01\x00") else None
    if header is None:
        raise CheckpointError(f"has the entry {name!r}, which is not a plain array in .npy 1.0")
    descr = header[1].decode("ascii", "replace")
    if not _DESCR.fullmatch(descr):
        raise CheckpointError(f"entry {name} has dtype {descr!r}, neither floating nor integer")
    dtype = np.dtype(descr)
    shape = tuple(int(n) for n in header[3].decode().split(",") if n.strip())
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise CheckpointError(f"entry {name} is {descr} of shape {shape} in {len(data) - start:,} bytes")
    order: Any = "F" if header[2] == b"True" else "C"
    return _as_bools(np.ndarray(shape, dtype, data, start, order=order).copy())


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    tensors = read_safetensors(path)
    data = map_file(path)
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    arrays: dict[str, np.ndarray] = {}
    with name_in_errors(path):
        for name, tensor in tensors.items():
            if tensor.kind:
                arrays[name] = tensor.read()
            elif tensor.dtype in _INTEGERS:
                numbers = data[start : start + tensor.nbytes].view(_INTEGERS[tensor.dtype])
                arrays[name] = _as_bools(numbers.reshape(tensor.shape))
            else:
                raise CheckpointError(f"entry {name} has dtype {tensor.dtype}, neither floating nor integer")
            start += tensor.nbytes
    return arrays


def _as_bools(x: np.ndarray) -> np.ndarray:
    """Return x; bools become 0 or 1, as NumPy assumes: a file may hold any byte."""
    return x.view(np.uint8) != 0 if x.dtype == bool else x
