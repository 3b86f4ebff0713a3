"""Files, carefully: checked before they are read, written beside their name and renamed."""

from __future__ import annotations

import json
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from tinyxp.errors import CheckpointError, UnsupportedModelError

JSON_LIMIT = 16 << 20
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns what reading a bad file raises into one CheckpointError that names ``path``."""
    try:
        yield
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, OverflowError, RecursionError, struct.error) as error:
        raise CheckpointError(f"{path}: {error}") from None


def file_size(path: Path) -> int:
    """The size of a regular file that is not empty; CheckpointError or OSError for anything else."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise CheckpointError("is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError("is not a regular file")  # reading a pipe or a device may never end
    if found.st_size == 0:
        raise CheckpointError("is empty")
    return found.st_size


def map_file(path: Path) -> np.ndarray:
    """The bytes of a file, mapped copy-on-write: torch and JAX want memory that may be written."""
    file_size(path)
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="c"))


def view(data: np.ndarray, offset: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Little-endian numbers in ``data``, as they lie there if that is aligned and native, else a copy."""
    found: np.ndarray = np.ndarray(shape, np.dtype(dtype).newbyteorder("<"), data, offset)
    return found.astype(found.dtype.newbyteorder("="), copy=not found.flags.aligned)


def pickle_error(path: Path) -> CheckpointError:
    """Pickles can run anything when they are read: says how to convert one without that."""
    return CheckpointError(
        f"{path}: pickles are not read, since reading one can run any code; with torch installed, convert it "
        f'safely in its folder: python -c "import torch, safetensors.torch as s; '
        f"d = torch.load('{path.name}', weights_only=True, map_location='cpu'); "
        f"s.save_file({{k: v.clone().contiguous() for k, v in d.items()}}, 'model.safetensors')\""
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a reasonable size; CheckpointError naming the file for anything else."""
    with naming(path):
        if (size := file_size(path)) > JSON_LIMIT:
            raise CheckpointError(f"is {size:,} bytes long; JSON of up to {JSON_LIMIT:,} is read")
        return parse_json(path.read_bytes())


def parse_json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"is not JSON: {error}") from None
    except UnicodeDecodeError:
        raise CheckpointError("is not JSON: it is not UTF-8 text") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"holds a JSON {type(found).__name__}, not an object")
    return found


def check_name(name: str) -> str:
    """A name of a file's own choosing, fit to be printed: no line breaks, no terminal's escapes."""
    if not name.isprintable():
        raise CheckpointError(f"has the name {name[:100]!r}, which is not printable")
    return name


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CheckpointError(f"has the key {twice!r} twice")
    return found


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes ``path``'s name once it is whole, and vanishes where anything goes wrong."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """A folder to write in; what had to be made for it is removed again where anything goes wrong."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for p in made:
            with suppress(OSError):
                p.rmdir()
        raise


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) -> float32 of the same values: the lower half of a float32 is zero."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 that holds bfloat16 values -> their bits (uint16)."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def stored(values: np.ndarray, kind: str) -> np.ndarray:
    """Values in the form that files keep: C order, little-endian, bfloat16 as its bits."""
    if kind == "bfloat16":
        return np.ascontiguousarray(narrow_bfloat16(values), "<u2")
    return np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
