"""Files, carefully: checked before they are read, written beside their name and renamed."""

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

FILE_LIMIT = 1 << 30  # weights named by mistake are not read into memory
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


def exists(path: Path) -> bool:
    """Whether anything is there; CheckpointError where that cannot be found out."""
    with naming(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


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


def pickle_error(path: Path) -> CheckpointError:
    """Pickles can run anything when they are read: says how to convert one without that."""
    return CheckpointError(
        f"{path}: pickles are not read, since reading one can run any code; with torch installed, convert it "
        f'safely in its folder: python -c "import torch, safetensors.torch as s; '
        f"d = torch.load('{path.name}', weights_only=True, map_location='cpu'); "
        f"s.save_file({{k: v.clone().contiguous() for k, v in d.items()}}, 'model.safetensors')\""
    )


def read_bytes(path: Path, limit: int = FILE_LIMIT) -> bytes:
    """The bytes of a regular file of up to ``limit`` bytes; CheckpointError or OSError for anything else."""
    if (size := file_size(path)) > limit:
        raise CheckpointError(f"is {size:,} bytes long; up to {limit:,} are read")
    return path.read_bytes()


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """A JSON object of a reasonable size; CheckpointError naming the file for anything else."""
    with naming(path):
        return parse_json(read_bytes(path, limit))


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8 whose keys stand once each; else CheckpointError."""
    try:
        found = json.loads(str(data, "utf-8"), object_pairs_hook=_unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not JSON: {error}") from None
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
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise CheckpointError(f"has the key {twice[:100]!r} twice")
    return found


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes ``path``'s name once it is whole, and vanishes where anything goes wrong.

    A link stays one, and its target is replaced; ValueError for what is neither a file nor not there.
    """
    asked, path = path, path.resolve() if path.is_symlink() else path
    if not path.name or (path.exists() and not path.is_file()):
        raise ValueError(f"{asked}: is not a regular file")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        # What a full disk raises names no file, and nobody asked for the one beside.
        ours = (None, os.fspath(beside))
        if isinstance(error, OSError) and error.errno is not None and error.filename in ours:
            error.filename = os.fspath(asked)
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


def floats(data: np.ndarray, offset: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of dtype ``kind`` as files keep them; bfloat16 becomes float32, which holds each of its values.

    They stay where they lie in ``data`` if that is aligned and in the machine's byte order.
    """
    dtype = np.dtype("u2" if kind == "bfloat16" else kind).newbyteorder("<")
    found: np.ndarray = np.ndarray(shape, dtype, data, offset)
    if kind == "bfloat16":  # the upper half of the float32
        return (found.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found.astype(found.dtype.newbyteorder("="), copy=not found.flags.aligned)


def stored(values: np.ndarray, kind: str) -> np.ndarray:
    """The inverse of ``floats``: values in C order and little-endian, bfloat16 as its bits."""
    if kind == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)
        return bits.astype("<u2")
    return np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
