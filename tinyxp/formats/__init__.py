"""Loading and saving models: Hugging Face folders, GGUF, llama2.c and .npz, each in a file of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.config import Config
from tinyxp.dtypes import dtype_name
from tinyxp.errors import CheckpointError
from tinyxp.files import PICKLES, exists, pickle_error, replacing
from tinyxp.formats import hub
from tinyxp.formats.gguf import open_gguf
from tinyxp.formats.hf_config import config_from_hf
from tinyxp.formats.huggingface import open_folder, write_folder
from tinyxp.formats.included import included
from tinyxp.formats.llama2c import open_llama2c
from tinyxp.formats.npz import open_npz, write_npz
from tinyxp.formats.plan import Checkpoint, TensorInfo, Weight
from tinyxp.joint import lay_together
from tinyxp.params import Params
from tinyxp.typing import Array, Namespace

__all__ = ["TensorInfo", "convert", "describe", "load", "load_config", "open_checkpoint", "save"]

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], object]

_OPENERS: dict[str, Callable[[Path], Checkpoint]] = {
    ".gguf": open_gguf,
    ".bin": open_llama2c,
    ".npz": open_npz,
}
_NEVER_WRITTEN = (".gguf", ".safetensors", ".json", *PICKLES)


def load(
    path: PathLike,
    *,
    xp: Namespace = np,
    dtype: str | None = None,
    device: Any = None,
    progress: Progress | None = None,
) -> Params:
    """The model at ``path``, as arrays of ``xp`` in ``dtype`` on ``device``.

    ``path`` is a Hugging Face folder (config.json, model.safetensors or its shards), a ``.gguf``, a llama2.c
    ``.bin``, a ``.npz``, or, where no such path exists, "holmes", which comes with this package, or a hub id
    "org/name". ``dtype`` None keeps the file's own where the library has it (bfloat16 becomes float32 on
    NumPy, exactly); a quantised GGUF comes as float32. Files are mapped copy-on-write and read tensor by
    tensor, so plain weights on NumPy stay in the file until they are used, but for those that are projected
    together, such as q, k and v: they are copied to lie together, for one product.
    ``progress(done, total)`` hears of the bytes of the parameters read.

    Raises CheckpointError naming the file for one that is missing, corrupt, incomplete or contradicts its
    config, UnsupportedModelError naming the config key for a model that this decoder does not compute,
    ImportError where the hub is asked for without ``tinyxp[hf]``.
    """
    target = registry.backend(xp)
    if dtype is not None:
        target.dtype(dtype)
    checkpoint = open_checkpoint(path)
    checkpoint.verify()
    arrays: dict[str, Array] = {}
    for name, weight in _counted(checkpoint.weights(), progress).items():
        lacks = weight.kind in ("bfloat16", "float16") and weight.kind not in target.dtypes()
        kept = "float32" if lacks else weight.kind
        arrays[name] = target.from_numpy(weight.read(), dtype=dtype or kept, device=device)
    return Params(lay_together(arrays, checkpoint.config, target), checkpoint.config)


def load_config(path: PathLike) -> Config:
    """The config of the model at ``path``, as ``load`` takes it; a folder needs no weights for it."""
    found = _locate(path, hub.CONFIGS)
    return config_from_hf(found) if found.is_dir() else open_checkpoint(found).config


def describe(path: PathLike) -> list[TensorInfo]:
    """Every tensor of the file, in its order: its name, the parameters that come of it, its shape and dtype
    in the file, and what happens on the way, such as ("dequantised", "rows un-permuted, 9 heads").

    No weights are read. Errors as for ``load``.
    """
    return open_checkpoint(path).describe()


def save(params: Params, path: PathLike) -> None:
    """Writes the model: one file if ``path`` ends in ``.npz``, else a folder that transformers loads
    (config.json, model.safetensors), each tensor in its own dtype.

    Files appear whole or not at all; others in the folder stay. Raises UnsupportedModelError for a mixture
    that transformers has no class for (``.npz`` takes any), ValueError for a format that is not written.
    """
    target = Path(path)
    _refuse_format(target)
    _write(target, params.config, {name: _weight(x) for name, x in params.items()}, {})


def convert(src: PathLike, dst: PathLike, *, progress: Progress | None = None) -> None:
    """The model at ``src`` (as for ``load``) -> ``dst`` (as for ``save``), tensor by tensor, dtypes kept.

    Tokenizer files beside the source go into a destination folder too (a GGUF keeps its own), and the ids
    of its special tokens into config.json. ``progress(done, total)`` hears of the bytes of the parameters
    written. Raises ValueError where a model stands at ``dst`` already, the source not least.
    """
    target = Path(dst)
    _refuse_format(target)
    if (target / "config.json").exists() or (_is_npz(target) and target.exists()):
        raise ValueError(f"{target}: holds a model already; name another destination, or remove that one")
    checkpoint = open_checkpoint(src)
    checkpoint.verify()
    weights = _counted(checkpoint.weights(), progress)
    _write(target, checkpoint.config, weights, checkpoint.special_ids)
    if checkpoint.tokenizer_beside and not _is_npz(target):
        _copy_tokenizer(checkpoint.path.parent, target)


def _weight(x: Array) -> Weight:
    owner = registry.backend_of(x)
    return Weight(tuple(x.shape), dtype_name(x.dtype), lambda: owner.to_numpy(x))


def open_checkpoint(path: PathLike) -> Checkpoint:
    """The model at ``path``, as ``load`` takes it, opened and checked; no weight is read."""
    found = _locate(path, hub.EVERYTHING)
    return open_folder(found) if found.is_dir() else _OPENERS[found.suffix.lower()](found)


def _locate(path: PathLike, patterns: tuple[str, ...]) -> Path:
    """A folder or a file of a known format that exists, fetched from the hub if need be."""
    found = Path(path)
    suffix = found.suffix.lower()
    if not exists(found):
        if (inside := included(path)) is not None:
            return inside
        if hub.HUB_ID.fullmatch(os.fspath(path)) and suffix not in (*_OPENERS, *_NEVER_WRITTEN):
            return hub.fetch(os.fspath(path), patterns)
        raise CheckpointError(f"{found}: no such file or folder (a hub id has the form org/name)")
    if found.is_dir() or suffix in _OPENERS:
        return found
    if suffix in PICKLES:
        raise pickle_error(found)
    if suffix in (".safetensors", ".json"):
        raise CheckpointError(
            f"{found}: pass its folder, where config.json and model.safetensors stand together"
        )
    raise CheckpointError(
        f"{found}: {suffix or 'no suffix'} is not a known format; a folder, {', '.join(_OPENERS)} are"
    )


def _refuse_format(path: Path) -> None:
    if path == Path():
        raise ValueError("the path to write to is empty, or the current folder")
    if path.suffix.lower() in _NEVER_WRITTEN:
        raise ValueError(
            f"{path}: {path.suffix} is not written; name a folder (Hugging Face's layout) or an .npz"
        )
    if not _is_npz(path) and path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is a file; a folder is to be written there")


def _write(path: Path, config: Config, weights: dict[str, Weight], special_ids: Mapping[str, Any]) -> None:
    if _is_npz(path):
        write_npz(path, config, weights)
    else:
        write_folder(path, config, weights, special_ids)


def _counted(weights: dict[str, Weight], progress: Progress | None) -> dict[str, Weight]:
    """The weights, each of which tells ``progress`` when it has been read."""
    if progress is None:
        return weights
    total, done = sum(weight.nbytes for weight in weights.values()), 0

    def counting(weight: Weight) -> Weight:
        def read() -> np.ndarray:
            nonlocal done
            values = weight.read()
            done += weight.nbytes
            progress(done, total)
            return values

        return weight._replace(read=read)

    return {name: counting(weight) for name, weight in weights.items()}


def _is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in (*hub.TOKENIZER_FILES, *(path.name for path in source.glob("tok*.bin"))):
        if (source / name).is_file():
            with (source / name).open("rb") as old, replacing(target / name) as new:
                shutil.copyfileobj(old, new)
