"""What training minimises: the loss of some windows, optionally with dropout and in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tinyxp.dtypes import bare_name
from tinyxp.engine import engine_of
from tinyxp.inputs import as_kernels
from tinyxp.model import loss
from tinyxp.ops import IGNORED, Kernels
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.text.windows import Windows
from tinyxp.train.recipe import Recipe
from tinyxp.typing import Array, Tap


def training_kernels(backend: Backend, kernels: Mapping[str, Any] | None) -> Kernels:
    """Return the backend's kernels that have gradients, replaced by the caller's of the same names."""
    if kernels is not None and not isinstance(kernels, Mapping):
        return as_kernels(kernels)
    fast = dict(engine_of(backend).training_kernels)
    if kernels and "linear" in kernels:
        fast.pop("linear_cross_entropy", None)  # it would not use the caller's linear
    return as_kernels({**fast, **(kernels or {})})


def check_windows(field: str, windows: Any, params: Params) -> Windows:
    """Return the windows as NumPy arrays. Raise ValueError naming ``field`` if the model cannot take them."""
    if not isinstance(windows, Windows):
        raise ValueError(f"{field} is a {type(windows).__name__}; it must be tinyxp.text.windows.Windows")
    ids, targets = map(np.asarray, windows)
    if ids.ndim != 2 or not ids.size or ids.shape != targets.shape:
        raise ValueError(
            f"{field} has ids of shape {ids.shape} and targets of shape {targets.shape}; "
            f"both must be (windows, tokens), 1 or more of each"
        )
    config = params.config
    for name, values in (("ids", ids), ("targets", targets)):
        if values.dtype.kind not in "iu":
            raise ValueError(f"{field} has {name} of dtype {values.dtype}; they must be integers")
        ignored = (values == IGNORED) & (name == "targets")
        wrong = values[~ignored & ((values < 0) | (values >= config.vocab_size))]
        if wrong.size:
            raise ValueError(
                f"{field} has the {name[:-1]} {wrong[0]}; the vocabulary size is {config.vocab_size}"
            )
    if config.position == "learned" and ids.shape[1] > config.max_seq_len:
        raise ValueError(f"{field} has windows of {ids.shape[1]} tokens; max_seq_len is {config.max_seq_len}")
    if not (targets != IGNORED).any():
        raise ValueError(f"{field} has no target that counts; all are {IGNORED}")
    return Windows(ids, targets)


def on_device(params: Params, x: np.ndarray) -> Array:
    """Convert integers to the index dtype of the parameters' library, on their device."""
    backend = params.backend
    return backend.from_numpy(x.astype(backend.index_dtype), device=params.device)


def batch_loss(
    params: Params, ids: Array, targets: Array, keep: Array | None, *, kernels: Kernels, recipe: Recipe
) -> Array:
    """Mean loss in nats. ids, targets (b, t); ``keep`` (2 L + 1, b, t, d) is True on what dropout keeps."""
    if recipe.dtype is not None and bare_name(params.dtype) != recipe.dtype:
        params = params.to(dtype=recipe.dtype)
    tap = None if keep is None else dropout_tap(keep, recipe.dropout, params)
    return loss(params, ids, targets, kernels=kernels, tap=tap)


def dropout_tap(keep: Array, dropout: float, params: Params) -> Tap:
    """Return a tap that computes x keep / (1 - dropout) at the points of ``dropout_points``.

    (Srivastava et al., 2014; at these points Radford et al., 2019.)
    """
    names = dropout_points(params.config.n_layers)
    xp = params.xp

    def tap(name: str, x: Array, /) -> Array:
        if name not in names:
            return x
        y: Array = xp.where(keep[names.index(name)], x * (1.0 / (1.0 - dropout)), xp.zeros_like(x))
        return y

    return tap


def dropout_points(n_layers: int) -> list[str]:
    """Return the trace points with dropout: the embedding, and what each block adds to it."""
    return ["embed", *(f"blocks.{i}.{name}" for i in range(n_layers) for name in ("attn.out", "mlp.out"))]


def draw_dropout(recipe: Recipe, step: int, shape: tuple[int, int], params: Params) -> np.ndarray | None:
    """Draw what dropout keeps at a step, for windows of ``shape`` (b, t): bool (2 L + 1, b, t, d), or None.

    The host draws it, so that every backend drops the same numbers.
    """
    if not recipe.dropout:
        return None
    config = params.config
    rng = np.random.default_rng([recipe.seed, step, 1])
    size = (2 * config.n_layers + 1, *shape, config.d_model)
    return rng.random(size, dtype=np.float32) >= recipe.dropout


@lru_cache(maxsize=16)
def compile_loss(backend: Backend, kernels: Kernels) -> Callable[..., Array]:
    """Return ``tinyxp.loss`` with these kernels, compiled at most once."""
    return compile_unless_eager(backend, partial(loss, kernels=kernels))


def compile_unless_eager(backend: Backend, f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f itself if the library's single operations are cheap, and f compiled if they are not."""
    return f if backend.eager else backend.jit(f)
