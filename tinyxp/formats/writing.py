"""Writing a model: a Hugging Face folder or an ``.npz``, from parameters or from another file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyxp import registry
from tinyxp.config import Config
from tinyxp.dtypes import dtype_name
from tinyxp.files import replacing
from tinyxp.formats import hub
from tinyxp.formats.checkpoint import Weight
from tinyxp.formats.huggingface import write_folder
from tinyxp.formats.loading import Progress, report_reads
from tinyxp.formats.npz import write_npz
from tinyxp.formats.opening import NEVER_WRITTEN, PathLike, open_checkpoint
from tinyxp.params import Params
from tinyxp.typing import Array


def save(params: Params, path: PathLike) -> None:
    """Write the model, each tensor in its own dtype.

    A ``path`` that ends in ``.npz`` is one file; any other is a folder that transformers loads (config.json,
    model.safetensors). Files appear whole or not at all; others in the folder stay. Raises
    UnsupportedModelError for a mixture that transformers has no class for (``.npz`` takes any), and
    ValueError for a format that is not written.
    """
    target = Path(path)
    _check_target(target)
    _write(target, params.config, {name: _weight_of(x) for name, x in params.items()}, {})


def convert(src: PathLike, dst: PathLike, *, progress: Progress | None = None) -> None:
    """Write the model at ``src`` (as for ``load``) to ``dst`` (as for ``save``), tensor by tensor.

    Dtypes stay. Tokenizer files beside the source are copied into a destination folder (a GGUF keeps its
    own), and the ids of its special tokens go into config.json. ``progress(done, total)`` counts bytes of the
    parameters. Raises ValueError if ``dst`` holds a model already, be it the source itself.
    """
    target = Path(dst)
    _check_target(target)
    if (target / "config.json").exists() or (_is_npz(target) and target.exists()):
        raise ValueError(f"{target}: holds a model already; name another destination, or remove that one")
    checkpoint = open_checkpoint(src)
    checkpoint.verify()
    weights = report_reads(checkpoint.weights(), progress)
    _write(target, checkpoint.config, weights, checkpoint.special_ids)
    if checkpoint.tokenizer_beside and not _is_npz(target):
        _copy_tokenizer(checkpoint.path.parent, target)


def _weight_of(x: Array) -> Weight:
    owner = registry.backend_of(x)
    return Weight(tuple(x.shape), dtype_name(x.dtype), lambda: owner.to_numpy(x))


def _check_target(path: Path) -> None:
    if path == Path():
        raise ValueError("the path to write to is empty, or the current folder")
    if path.suffix.lower() in NEVER_WRITTEN:
        raise ValueError(
            f"{path}: {path.suffix} is not written; name a folder (Hugging Face's layout) or an .npz"
        )
    if not _is_npz(path) and path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is a file; the model is written as a folder")


def _write(path: Path, config: Config, weights: dict[str, Weight], special_ids: Mapping[str, Any]) -> None:
    if _is_npz(path):
        write_npz(path, config, weights)
    else:
        write_folder(path, config, weights, special_ids)


def _is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in (*hub.TOKENIZER_FILES, *(path.name for path in source.glob("tok*.bin"))):
        if (source / name).is_file():
            with (source / name).open("rb") as old, replacing(target / name) as new:
                shutil.copyfileobj(old, new)
