"""What training minimises: the loss of some windows, with dropout and in narrow numbers where asked."""

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


def training_kernels(backend: Backend, given: Mapping[str, Any] | None) -> Kernels:
    """The backend's fast twins that have gradients, and the caller's in their place."""
    if given is not None and not isinstance(given, Mapping):
        return as_kernels(given)
    fast = dict(engine_of(backend).training_kernels)
    if given and "linear" in given:
        fast.pop("linear_cross_entropy", None)  # it has a product of its own, where the caller's is wanted
    return as_kernels({**fast, **(given or {})})


def check_windows(field: str, windows: Any, params: Params) -> Windows:
    """Windows whose ids and targets this model knows; ValueError naming the field otherwise."""
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
        left_out = (values == IGNORED) & (name == "targets")
        wrong = values[~left_out & ((values < 0) | (values >= config.vocab_size))]
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
    """Integers as the parameters' library indexes with them."""
    backend = params.backend
    return backend.from_numpy(x.astype(backend.index_dtype), device=params.device)


def objective(
    params: Params, ids: Array, targets: Array, kept: Array | None, *, kernels: Kernels, recipe: Recipe
) -> Array:
    """The mean loss in nats; ``kept`` (2 L + 1, b, t, d) tells what dropout keeps."""
    if recipe.dtype is not None and bare_name(params.dtype) != recipe.dtype:
        params = params.to(dtype=recipe.dtype)
    tap = None if kept is None else dropping(kept, recipe.dropout, params)
    return loss(params, ids, targets, kernels=kernels, tap=tap)


def dropping(kept: Array, dropout: float, params: Params) -> Tap:
    """The tap that sets to 0 what is not kept of the embedding and of what each block adds to it, and scales
    the rest by 1 / (1 - dropout). (Srivastava et al., 2014; in those places Radford et al., 2019.)
    """
    names = dropped_names(params.config.n_layers)
    xp = params.xp

    def tap(name: str, x: Array, /) -> Array:
        if name not in names:
            return x
        y: Array = xp.where(kept[names.index(name)], x * (1.0 / (1.0 - dropout)), xp.zeros_like(x))
        return y

    return tap


def dropped_names(n_layers: int) -> list[str]:
    """The trace points that dropout falls on."""
    return ["embed", *(f"blocks.{i}.{name}" for i in range(n_layers) for name in ("attn.out", "mlp.out"))]


def drawn_kept(recipe: Recipe, step: int, shape: tuple[int, int], params: Params) -> np.ndarray | None:
    """What dropout keeps at a step, for windows of that shape: drawn on the host, the same everywhere."""
    if not recipe.dropout:
        return None
    config = params.config
    rng = np.random.default_rng([recipe.seed, step, 1])
    size = (2 * config.n_layers + 1, *shape, config.d_model)
    return rng.random(size, dtype=np.float32) >= recipe.dropout


@lru_cache(maxsize=16)
def compiled_loss(backend: Backend, kernels: Kernels) -> Callable[..., Array]:
    """``tinyxp.loss`` with these kernels, compiled where that comes cheap; the same function every time."""
    return compiled(backend, partial(loss, kernels=kernels))


def compiled(backend: Backend, f: Callable[..., Any]) -> Callable[..., Any]:
    """f as it is where operations are cheap one by one; else compiled."""
    return f if backend.eager else backend.jit(f)
