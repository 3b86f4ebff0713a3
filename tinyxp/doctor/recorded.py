"""Recorded traces: trace point -> array, with the ids, in one .npz or .safetensors file."""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from tinyxp.doctor.points import Batch, axes, kind, ordered
from tinyxp.errors import CheckpointError
from tinyxp.files import FILE_LIMIT, check_name, make_folder, map_file, name_in_errors, replacing
from tinyxp.formats.npz import NPY_HEADER
from tinyxp.formats.safetensors_file import read_safetensors
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask

SUFFIXES = (".npz", ".safetensors")
_INTEGERS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}
_FLOATS = ("float64", "float32", "float16")
_DESCR = re.compile(r"[<>|=](f[248]|[iu][1248]|b1)")
_ANY_ID = Bounds("ids", 2**31, "the limit")
_FORMS = {
    "attn.q": "(b, t, h*hd)",
    "attn.k": "(b, t, g*hd)",
    "attn.v": "(b, t, g*hd)",
    "attn.q_rotated": "(b, h, t, hd)",
    "attn.k_rotated": "(b, g, t, hd)",
    "attn.scores": "(b, h, t, t)",
    "attn.weights": "(b, h, t, t)",
    "attn.heads": "(b, t, h*hd)",
    "mlp.gate": "(b, t, f)",
    "mlp.up": "(b, t, f)",
    "mlp.hidden": "(b, t, f)",
    "logits": "(b, t, n)",
}


class Recorded(NamedTuple):
    """What one run gave."""

    batch: Batch
    points: dict[str, np.ndarray]


def form(name: str) -> str:
    """The shape of a point's array, in the letters of ``tinyxp.model``."""
    return _FORMS.get(kind(name), "(b, t, d)")


def write_trace(path: Path | str, points: Mapping[str, np.ndarray], *, ids: Any, mask: Any = None) -> None:
    """Writes trace point -> array, and ``ids`` (b, t), and ``mask`` (b, t) where there is one.

    ``path`` ends in .npz or .safetensors; the file appears whole or not at all. ValueError for another
    suffix, for names that are no trace points, and for arrays of other rows or columns than ids.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: {path.suffix or 'no suffix'} is no format of traces; .npz and .safetensors are"
        )
    found = checked({name: np.asarray(x) for name, x in points.items()}, ids, mask)
    arrays: dict[str, np.ndarray] = {"ids": found.batch.ids}
    if found.batch.mask is not None:
        arrays["mask"] = found.batch.mask
    arrays |= found.points
    with make_folder(path.parent), replacing(path) as file:
        if path.suffix.lower() == ".npz":
            np.savez(file, allow_pickle=False, **arrays)
        else:
            _write_safetensors(file, arrays)


def _write_safetensors(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, x in sorted(arrays.items(), key=lambda item: -item[1].itemsize):  # so that all are aligned
        offsets = [end, end := end + x.nbytes]
        header[name] = {"dtype": _NAMES[x.dtype.name], "shape": x.shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in header:
        file.write(np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<")).data)


def is_trace(path: Path) -> bool:
    """Whether a file is a recorded trace rather than a model: it has an entry ``ids``."""
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
    """The trace in a file; CheckpointError naming the file and what is wrong with it. Nothing is executed."""
    path = Path(path)
    arrays = _read_npz(path) if path.suffix.lower() == ".npz" else _read_safetensors(path)
    with name_in_errors(path):
        if "ids" not in arrays:
            raise CheckpointError("has no entry 'ids': the token ids (b, t) that went in")
        ids, mask = arrays.pop("ids"), arrays.pop("mask", None)
        return checked(arrays, ids, mask)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with name_in_errors(path):
        size = map_file(path).size  # that there is a regular file that is not empty
        try:
            with zipfile.ZipFile(path) as archive:
                total = sum(info.file_size for info in archive.infolist())
                if total > max(FILE_LIMIT, 8 * size):  # numbers are hardly compressed so far; bombs are
                    raise CheckpointError(f"unpacks from {size:,} to {total:,} bytes")
                for info in archive.infolist():
                    name = check_name(info.filename.removesuffix(".npy"))
                    if name in found:
                        raise CheckpointError(f"has the entry {name!r} twice")
                    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise CheckpointError(f"has the entry {name!r} in a compression that is not read")
                    found[name] = _array(name, archive.read(info))
        # An encrypted member is a RuntimeError.
        except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as error:
            raise CheckpointError(f"is not an .npz file: {error or 'truncated'}") from None
    return found


def _array(name: str, data: bytes) -> np.ndarray:
    """The array in the bytes of an .npy, which numpy.load would take memory for before it looked at them."""
    start = 10 + int.from_bytes(data[8:10], "little")
    header = NPY_HEADER.fullmatch(data[10:start]) if data.startswith(b"\x93NUMPY\x01\x00") else None
    if header is None:
        raise CheckpointError(f"has the entry {name!r} that is not a plain array in .npy 1.0")
    descr = header[1].decode("ascii", "replace")
    if not _DESCR.fullmatch(descr):
        raise CheckpointError(f"entry {name} has dtype {descr!r}; floats and integers are read")
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
    found: dict[str, np.ndarray] = {}
    with name_in_errors(path):
        for name, tensor in tensors.items():
            if tensor.kind:
                found[name] = tensor.read()
            elif tensor.dtype in _INTEGERS:
                numbers = data[start : start + tensor.nbytes].view(_INTEGERS[tensor.dtype])
                found[name] = _as_bools(numbers.reshape(tensor.shape))
            else:
                raise CheckpointError(f"entry {name} has dtype {tensor.dtype}; floats and integers are read")
            start += tensor.nbytes
    return found


def _as_bools(x: np.ndarray) -> np.ndarray:
    """x, with bools that are 0 or 1: a file's bytes may be anything, and NumPy counts on it."""
    return x.view(np.uint8) != 0 if x.dtype == bool else x


def checked(points: Mapping[str, np.ndarray], ids: Any, mask: Any = None) -> Recorded:
    """The trace with its batch axis, in order; ValueError naming what does not fit.

    One sequence may come without its batch axis: ids (t,), arrays (t, ...) or (heads, t, ...).
    """
    ids = _native(np.asarray(ids))
    ids = as_host_integers(ids[None] if ids.ndim == 1 else ids, _ANY_ID)
    if mask is not None:
        mask = _native(np.asarray(mask))
        mask = as_host_mask(mask[None] if mask.ndim == 1 else mask, ids.shape)
    if not points:
        raise ValueError("there is no trace point besides ids")
    b, t = ids.shape
    found = {}
    for name in ordered(points):
        x = check_dtype(name, points[name])
        if x.ndim == len(axes(name)) - 1 and b == 1:
            x = x[None]
        sizes = {"row": b, "position": t, "key": t}
        fits = x.ndim == len(axes(name)) and 0 not in x.shape
        if not fits or any(sizes.get(axis, n) != n for axis, n in zip(axes(name), x.shape, strict=True)):
            raise ValueError(
                f"trace point {name} has shape {points[name].shape}; {form(name)} is wanted, "
                f"and ids is {ids.shape}"
            )
        found[name] = _native(x)
    return Recorded(Batch(ids, mask), found)


def _native(x: np.ndarray) -> np.ndarray:
    """x in the machine's byte order."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def check_dtype(name: str, x: np.ndarray) -> np.ndarray:
    """x; bfloat16, as JAX gives it to NumPy, as float32. ValueError for what is not floating."""
    if x.dtype.name == "bfloat16":
        return x.astype(np.float32)
    if x.dtype.name not in _FLOATS:
        raise ValueError(
            f"trace point {name} has dtype {x.dtype}; {', '.join(_FLOATS)} and bfloat16 are taken"
        )
    return x
