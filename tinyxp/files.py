"""Safe file access: check files before reading them, replace them only once the new content is complete."""

from __future__ import annotations

import json
import os
import secrets
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from tinyxp.errors import CheckpointError, UnsupportedModelError

FILE_LIMIT = 1 << 30
"""Bytes that are read into memory at most, so that weights named by mistake are not."""
JSON_LIMIT = 16 << 20
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Turn an error of reading a bad file into one CheckpointError that begins with ``path``."""
    try:
        yield
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, OverflowError, RecursionError, struct.error) as error:
        raise CheckpointError(f"{path}: {error}") from None


def exists(path: Path) -> bool:
    """Return whether ``path`` exists; raise CheckpointError if the system cannot tell."""
    with name_in_errors(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def file_size(path: Path) -> int:
    """Return the size of a regular file that is not empty; CheckpointError or OSError for anything else."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointError("is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("is not a regular file")  # reading a pipe or a device may never end
    if status.st_size == 0:
        raise CheckpointError("is empty")
    return status.st_size


def map_file(path: Path) -> np.ndarray:
    """Map the bytes of a file copy-on-write: torch and JAX need memory that they may write."""
    file_size(path)
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="c"))


def pickle_error(path: Path) -> CheckpointError:
    """Return the error for a pickle, with a safe way to convert it: reading one can run any code."""
    return CheckpointError(
        f"{path}: pickles are not read, since reading one can run any code; with torch installed, convert it "
        f'safely in its folder: python -c "import torch, safetensors.torch as s; '
        f"d = torch.load('{path.name}', weights_only=True, map_location='cpu'); "
        f"s.save_file({{k: v.clone().contiguous() for k, v in d.items()}}, 'model.safetensors')\""
    )


def read_bytes(path: Path, limit: int = FILE_LIMIT) -> bytes:
    """Read a regular file of up to ``limit`` bytes; CheckpointError or OSError for anything else."""
    if (size := file_size(path)) > limit:
        raise CheckpointError(f"is {size:,} bytes long; the limit is {limit:,}")
    return path.read_bytes()


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """Read a JSON object of up to ``limit`` bytes; CheckpointError naming the file for anything else."""
    with name_in_errors(path):
        return parse_json(read_bytes(path, limit))


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse a JSON object in UTF-8 without repeated keys; CheckpointError for anything else."""
    try:
        value = json.loads(str(data, "utf-8"), object_pairs_hook=_build_object)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"holds a JSON {type(value).__name__}, not an object")
    return value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise CheckpointError(f"has the key {repeated[:100]!r} twice")
    return values


def check_name(name: str) -> str:
    """Return a name from a file if it is safe to print: no line breaks, no terminal escapes."""
    if not name.isprintable():
        raise CheckpointError(f"has the name {name[:100]!r}, which is not printable")
    return name


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed to ``path`` on success and deleted on any error.

    A symbolic link stays; its target is replaced. Raises ValueError if ``path`` exists but is not a file.
    """
    requested, path = path, path.resolve() if path.is_symlink() else path
    if not path.name or (path.exists() and not path.is_file()):
        raise ValueError(f"{requested}: is not a regular file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        # A full disk names no file; other errors name the temporary file, which the caller does not know.
        own_names = (None, os.fspath(temporary))
        if isinstance(error, OSError) and error.errno is not None and error.filename in own_names:
            error.filename = os.fspath(requested)
        raise


@contextmanager
def make_folder(path: Path) -> Iterator[None]:
    """Create a folder and its parents; on any error, remove the ones that were created."""
    created = [p for p in (path, *path.parents) if not p.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for p in created:
            with suppress(OSError):
                p.rmdir()
        raise


def decode_floats(data: np.ndarray, offset: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read little-endian numbers of dtype ``kind`` from the bytes ``data`` at ``offset``.

    bfloat16 becomes float32, which represents every bfloat16 exactly. Other dtypes are views of ``data`` if
    it is aligned and the machine is little-endian.
    """
    dtype = np.dtype("u2" if kind == "bfloat16" else kind).newbyteorder("<")
    values: np.ndarray = np.ndarray(shape, dtype, data, offset)
    if kind == "bfloat16":  # the upper half of the float32
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(values.dtype.newbyteorder("="), copy=not values.flags.aligned)


def encode_floats(values: np.ndarray, kind: str) -> np.ndarray:
    """Invert ``decode_floats``: values in C order and little-endian, bfloat16 as its bits."""
    if kind == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)
        return bits.astype("<u2")
    return np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
