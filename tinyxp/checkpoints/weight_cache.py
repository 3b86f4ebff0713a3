"""What quantised GGUF files become, kept in a folder: one .npz for each file, named by the file's digest.

An entry is mapped, so that no weight is computed or copied when it is used again. It is believed only where
its name is the SHA-256 of the whole GGUF, and every member of it has the CRC-32 that was taken when it was
written: reading both costs less than dequantising, and neither a file that was changed behind its old size
and time nor an entry that a crash or a bad disk damaged gives wrong weights. None of this protects from
someone who may write in the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from tinyxp.checkpoints.files import folder, naming, replacing
from tinyxp.checkpoints.npz import dump_npz, open_npz
from tinyxp.checkpoints.plan import Checkpoint, Progress, counted
from tinyxp.config import Config
from tinyxp.errors import CheckpointError

VARIABLE = "TINYXP_CACHE"
VERSION = 1
"""To be raised where the same GGUF would become other weights: older entries are not found then."""

_NAME = re.compile(r"[0-9a-f]{64}-\d+\.npz|\.[0-9a-f]{64}-\d+\.npz\.[0-9a-f]{8}\.tmp")


def cache_folder() -> Path | None:
    """The folder that the environment variable TINYXP_CACHE names, or ``tinyxp`` in XDG_CACHE_HOME or in
    ~/.cache; None where TINYXP_CACHE is empty. OSError where no folder is the user's home."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given).expanduser() if given else None
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # such are to be ignored: XDG Base Directory Specification
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise OSError(str(error)) from None
    return base / "tinyxp"


def is_quantised(checkpoint: Checkpoint) -> bool:
    """Whether any weight must be dequantised: other files are mapped as they are, and need no copy."""
    return any("dequantised" in tensor.steps for tensor in checkpoint.tensors.values())


def entry_of(checkpoint: Checkpoint, cache: Path) -> Path:
    """Where in the folder ``cache`` the weights of ``checkpoint`` are kept, whether they are there or not.

    Reads the whole file, for its digest.
    """
    return cache / f"{_digest(checkpoint.path)}-{VERSION}.npz"


def read_entry(entry: Path, config: Config) -> Checkpoint | None:
    """The weights kept in ``entry``, mapped, every byte of them checked; None where it is missing, damaged,
    or of another config."""
    try:
        found = open_npz(entry, checked=True)
    except CheckpointError:
        return None
    return found if found.config == config else None


def write_entry(entry: Path, checkpoint: Checkpoint, progress: Progress | None = None) -> None:
    """Writes ``entry`` (of ``entry_of``), tensor by tensor: it appears whole or not at all, and of several
    writers the last one's stays. ``progress`` is as for ``load``.

    OSError where it cannot be written; CheckpointError where the file changes meanwhile.
    """
    with folder(entry.parent), replacing(entry) as file:
        dump_npz(file, checkpoint.config, counted(checkpoint.weights(), progress))
        with naming(checkpoint.path):
            if not entry.name.startswith(_digest(checkpoint.path)):
                raise CheckpointError("was changed while it was read")


def entries(cache: Path) -> dict[Path, int]:
    """The files of this cache in a folder, and their bytes; what an interrupted writer left is among them."""
    if not cache.is_dir():
        return {}
    return {path: path.stat().st_size for path in cache.iterdir() if _NAME.fullmatch(path.name)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
