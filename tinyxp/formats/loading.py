"""Loading a model's weights, tensor by tensor, as arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxp import registry
from tinyxp.formats.checkpoint import Weight
from tinyxp.formats.opening import PathLike, open_checkpoint
from tinyxp.joint import lay_together
from tinyxp.params import Params
from tinyxp.typing import Array, Namespace

Progress = Callable[[int, int], object]
"""Called with the bytes of the parameters that are done, and of all."""


def load(
    path: PathLike,
    *,
    xp: Namespace = np,
    dtype: str | None = None,
    device: Any = None,
    progress: Progress | None = None,
) -> Params:
    """Load the model at ``path`` as arrays of ``xp`` in ``dtype`` on ``device``.

    ``path`` is a Hugging Face folder (config.json, model.safetensors or its shards), a ``.gguf``, a llama2.c
    ``.bin`` or a ``.npz``. If no such path exists, it may be "holmes", which comes with this package, or a
    hub id "org/name". ``dtype`` None keeps the file's dtype if the library has it; bfloat16 becomes float32
    on NumPy, exactly, and a quantised GGUF comes as float32. ``progress(done, total)`` counts bytes of the
    parameters.

    Files are mapped copy-on-write and read tensor by tensor, so plain weights on NumPy stay in the file
    until they are used. Weights that are multiplied together, such as q, k and v, are copied to be adjacent.

    Raise CheckpointError naming the file if it is missing, corrupt, incomplete or contradicts its config.
    Raise UnsupportedModelError naming the config key of a model that this decoder does not compute, and
    ImportError if the hub is needed without ``tinyxp[hf]``.
    """
    target = registry.backend(xp)
    if dtype is not None:
        target.dtype(dtype)
    checkpoint = open_checkpoint(path)
    checkpoint.verify()
    arrays: dict[str, Array] = {}
    for name, weight in report_reads(checkpoint.weights(), progress).items():
        lacks = weight.kind in ("bfloat16", "float16") and weight.kind not in target.dtypes()
        own_dtype = "float32" if lacks else weight.kind
        arrays[name] = target.from_numpy(weight.read(), dtype=dtype or own_dtype, device=device)
    return Params(lay_together(arrays, checkpoint.config, target), checkpoint.config)


def report_reads(weights: dict[str, Weight], progress: Progress | None) -> dict[str, Weight]:
    """Return the weights, each of which calls ``progress`` when it has been read."""
    if progress is None:
        return weights
    total, done = sum(weight.nbytes for weight in weights.values()), 0

    def report(weight: Weight) -> Weight:
        def read() -> np.ndarray:
            nonlocal done
            values = weight.read()
            done += weight.nbytes
            progress(done, total)
            return values

        return weight._replace(read=read)

    return {name: report(weight) for name, weight in weights.items()}
