"""The edge of the model: what callers hand in is checked here, once, and becomes arrays of one library."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.ops import IGNORED, Kernels, cast
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array, Namespace


class Inputs(NamedTuple):
    """Checked arguments of one pass, all arrays of ``params.xp``."""

    params: Params
    ids: Array
    positions: Array | None
    mask: Array | None
    backend: Backend
    device: Any


def as_params(params: Params, xp: Namespace | None) -> Params:
    """params as arrays of ``xp``, or as they are where xp is None or theirs."""
    if not isinstance(params, Params):
        raise ValueError(f"params is a {type(params).__name__}; it must be tinyxp.Params")
    if xp is None or registry.backend(xp) is params.backend:
        return params
    return params.to(xp)


def prepare(params: Params, ids: Any, positions: Any, mask: Any, xp: Namespace | None) -> Inputs:
    """Checks and converts what forward, loss and extend share; raises ValueError naming what is wrong."""
    params = as_params(params, xp)
    backend = params.backend
    device = backend.device_of(params["embed.weight"])
    n = params.config.vocab_size
    ids = integers("ids", ids, backend, device, low=0, high=n, limit=f"the vocabulary size {n}")
    b, t = ids.shape
    if positions is not None:
        positions = integers("positions", positions, backend, device, low=0, high=None, limit="")
        if positions.shape not in ((1, t), (b, t)):
            raise ValueError(f"positions has shape {tuple(positions.shape)}; ids has {(b, t)}")
    if mask is not None:
        mask = as_mask(mask, (b, t), backend, device)
    return Inputs(params, ids, positions, mask, backend, device)


def as_kernels(given: Any) -> Kernels:
    """None, a Kernels record or a mapping of names in ops to functions -> Kernels."""
    if given is None:
        return Kernels()
    if isinstance(given, Kernels):
        return given
    unknown = sorted(set(given) - set(Kernels._fields))
    if unknown:
        raise ValueError(f"kernels names {unknown}; known are {', '.join(Kernels._fields)}")
    return Kernels(**given)


def targets_like(targets: Any, shape: tuple[int, ...], inputs: Inputs) -> Array:
    """Targets (b, t) in the vocabulary, or -100 where nothing is to be predicted."""
    n = inputs.params.config.vocab_size
    limit = f"the vocabulary size {n}; {IGNORED} marks a target that is left out"
    wanted = integers(
        "targets", targets, inputs.backend, inputs.device, low=0, high=n, limit=limit, besides=IGNORED
    )
    if tuple(wanted.shape) != shape:
        raise ValueError(f"targets has shape {tuple(wanted.shape)}; ids has {shape}")
    return wanted


def check_learned_positions(inputs: Inputs, positions: Array) -> None:
    """Raises ValueError where a learned position reaches max_seq_len; rotary ones have no end."""
    config = inputs.params.config
    if config.position != "learned":
        return
    known = inputs.ids.shape[1] if inputs.positions is None and inputs.mask is None else 0
    if known <= config.max_seq_len and inputs.backend.is_concrete(positions):
        known = int(inputs.params.xp.max(positions)) + 1
    if known > config.max_seq_len:
        raise ValueError(f"positions: {known} > {config.max_seq_len}, the max_seq_len of this model")


def check_room(inputs: Inputs, real: Array, used: Array) -> None:
    """Raises ValueError where a cache (b, s) has other rows than ids (b, t), or fewer than t slots left."""
    (b, t), (rows, slots) = inputs.ids.shape, real.shape
    if rows != b:
        raise ValueError(f"ids has {b} rows; the cache has {rows}")
    known = t + int(used) if inputs.backend.is_concrete(used) else t
    if known > slots:
        raise ValueError(f"cache length: {known} columns > {slots}, the length of this cache")


def integers(
    field: str,
    x: Any,
    backend: Backend,
    device: Any,
    *,
    low: int,
    high: int | None,
    limit: str,
    besides: int | None = None,
) -> Array:
    """Integers (b, t) with b and t of 1 or more, each in [low, high) or ``besides``, as the backend indexes.

    Lists and arrays of other libraries are checked on NumPy, before any library could wrap or clip them;
    the backend's own wherever their values can be read: not under jit, on torch's meta device or lazily.
    """
    if not _is_native(x, backend):
        host = host_integers(field, x, low=low, high=high, limit=limit, besides=besides)
        return backend.from_numpy(host.astype(backend.index_dtype), device=device)
    _check_integers(field, x, backend.xp, backend.is_concrete(x), low, high, limit, besides)
    wanted: Array = cast(x, getattr(backend.xp, backend.index_dtype), xp=backend.xp)
    return wanted


def host_integers(
    field: str, x: Any, *, low: int, high: int | None, limit: str, besides: int | None = None
) -> np.ndarray:
    """The same, on NumPy as int64."""
    host = _to_host(field, x)
    _check_integers(field, host, np, True, low, high, limit, besides)
    return host.astype(np.int64)


def _check_integers(
    field: str,
    x: Any,
    xp: Namespace,
    concrete: bool,
    low: int,
    high: int | None,
    limit: str,
    besides: int | None,
) -> None:
    shape = tuple(x.shape)
    if len(shape) != 2:
        raise ValueError(f"{field} has shape {shape}; it must be (batch, time)")
    if 0 in shape:
        raise ValueError(f"{field} has shape {shape}; batch and time must be 1 or more")
    if "int" not in _kind(x):
        raise ValueError(f"{field} has dtype {_kind(x)}; it must be an integer dtype")
    if not concrete:
        return
    inside = x if besides is None else xp.where(x == besides, low, x)
    for extreme in (int(xp.min(inside)), int(xp.max(inside))):
        if extreme < low or (high is not None and extreme >= high):
            most = "" if high is None else f" and below {limit}"
            raise ValueError(f"{field} holds {extreme}; it must be {low} or more{most}")


def as_mask(mask: Any, shape: tuple[int, ...], backend: Backend, device: Any) -> Array:
    """A mask (b, t), True (or 1) on real tokens, False (or 0) on padding, as bool of the backend."""
    if not _is_native(mask, backend):
        return backend.from_numpy(host_mask(mask, shape), device=device)
    _check_mask(mask, shape, backend.xp, backend.is_concrete(mask))
    bools: Array = mask if _kind(mask) == "bool" else mask != 0
    return bools


def host_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The same, on NumPy."""
    host = _to_host("mask", mask)
    _check_mask(host, shape, np, True)
    return host.astype(bool)


def _check_mask(mask: Any, shape: tuple[int, ...], xp: Namespace, concrete: bool) -> None:
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; ids has {tuple(shape)}")
    kind = _kind(mask)
    if kind == "bool":
        return
    if "int" not in kind:
        raise ValueError(f"mask has dtype {kind}; it must be bool (True on real tokens) or integers 0 and 1")
    if concrete and not (int(xp.min(mask)) >= 0 and int(xp.max(mask)) <= 1):
        raise ValueError("mask holds integers other than 0 (padding) and 1 (a real token)")


def _is_native(x: Any, backend: Backend) -> bool:
    return not isinstance(x, np.ndarray) and backend.is_array(x)


def _to_host(field: str, x: Any) -> np.ndarray:
    """Lists, NumPy arrays and arrays of any known library on NumPy."""
    if not isinstance(x, np.ndarray) and hasattr(x, "dtype") and hasattr(x, "shape"):
        x = registry.backend_of(x).to_numpy(x)
    try:
        return np.asarray(x)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{field} is not a rectangular array of integers: {error}") from None


def _kind(x: Array) -> str:
    return str(x.dtype).rsplit(".", 1)[-1]
