"""The edge of the model: what callers hand in is checked here, once, and becomes arrays of one library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.dtypes import bare_name, dtype_name
from tinyxp.ops import IGNORED, Kernels, cast, untapped
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array, Namespace, Tap

if TYPE_CHECKING:
    from tinyxp.cache import Cache


class Inputs(NamedTuple):
    """Checked arguments of one pass, all arrays of ``params.xp``."""

    params: Params
    ids: Array
    positions: Array | None
    mask: Array | None


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
    config, backend, device = params.config, params.backend, params.device
    ids = integers(ids, Range("ids", config.vocab_size, "the vocabulary size"), backend, device)
    b, t = ids.shape
    if positions is not None:
        largest = Range("positions", 2**31, "the limit")  # int32's, the narrowest index of a backend
        learned = Range("positions", config.max_seq_len, "max_seq_len")
        positions = integers(positions, learned if config.position == "learned" else largest, backend, device)
        if positions.shape not in ((1, t), (b, t)):
            raise ValueError(f"positions has shape {tuple(positions.shape)}; ids has {(b, t)}")
    if mask is not None:
        mask = as_mask(mask, (b, t), backend, device)
    return Inputs(params, ids, positions, mask)


def as_kernels(given: Any) -> Kernels:
    """None, a Kernels record or a mapping of names in ops to functions -> Kernels."""
    if given is None:
        return Kernels()
    if isinstance(given, Kernels):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"kernels is {given!r}; it must map names in tinyxp.ops to functions")
    for name, function in given.items():
        if name not in Kernels._fields:
            raise ValueError(f"kernels names {name!r}; known are {', '.join(Kernels._fields)}")
        if not callable(function):
            raise ValueError(f"kernels maps {name!r} to {function!r}; it must be a function")
    return Kernels(**given)


def as_tap(given: Any) -> Tap:
    """None or a function of a name and an array -> a tap."""
    if given is not None and not callable(given):
        raise ValueError(f"tap is {given!r}; it must be a function of a name and an array")
    return given or untapped


def targets_like(targets: Any, shape: tuple[int, ...], inputs: Inputs) -> Array:
    """Targets (b, t) in the vocabulary, or -100 where nothing is to be predicted."""
    params = inputs.params
    limits = Range("targets", params.config.vocab_size, "the vocabulary size", besides=IGNORED)
    wanted = integers(targets, limits, params.backend, params.device)
    if tuple(wanted.shape) != shape:
        raise ValueError(f"targets has shape {tuple(wanted.shape)}; ids has {shape}")
    return wanted


def check_learned_positions(inputs: Inputs, positions: Array) -> None:
    """Raises ValueError where counting learned positions reaches max_seq_len; rotary ones have no end."""
    config, backend = inputs.params.config, inputs.params.backend
    if config.position != "learned" or inputs.positions is not None:
        return
    known = inputs.ids.shape[1] if inputs.mask is None else 0
    if known <= config.max_seq_len and backend.is_concrete(positions):
        known = int(backend.to_numpy(positions).max()) + 1
    if known > config.max_seq_len:
        raise ValueError(f"positions: {known} > {config.max_seq_len}, the max_seq_len of this model")


def check_cache(inputs: Inputs, cache: Cache) -> None:
    """Raises ValueError where a cache is not of these parameters and ids, or has fewer than t slots left."""
    params, backend, (b, t) = inputs.params, inputs.params.backend, inputs.ids.shape
    if not backend.is_array(cache.real):
        raise ValueError(f"cache holds no arrays of {backend.name}, which the parameters are of")
    config, (rows, slots) = params.config, cache.real.shape
    if rows != b:
        raise ValueError(f"ids has {b} rows; the cache has {rows}")
    wanted = (config.n_layers, b, config.n_kv_heads, slots, config.head_dim)
    found = (len(cache.keys), *cache.keys[0].shape)
    if found != wanted or cache.keys[0].dtype != params.dtype:
        raise ValueError(
            f"cache has (layers, rows, heads, slots, head_dim) {found} in {dtype_name(cache.keys[0].dtype)}; "
            f"the parameters want {wanted} in {dtype_name(params.dtype)}"
        )
    known = t + int(cache.used) if backend.is_concrete(cache.used) else t
    if known > slots:
        raise ValueError(f"cache length: {known} columns > {slots}, the length of this cache")


class Range(NamedTuple):
    """What integers of a field may be: 0 up to ``high``, which ``what`` names, or ``besides``."""

    field: str
    high: int
    what: str
    besides: int | None = None


def integers(x: Any, limits: Range, backend: Backend, device: Any) -> Array:
    """Integers (b, t), neither of them 0, within their limits, in the dtype that the backend indexes with.

    Lists and arrays of other libraries are checked on NumPy, before any library could wrap or clip them;
    the backend's own wherever their values can be read: not under jit or on torch's meta device.
    """
    if not _is_native(x, backend):
        return backend.from_numpy(host_integers(x, limits).astype(backend.index_dtype), device=device)
    _check_form(x, limits.field)
    if backend.is_concrete(x):
        _check_values(backend.to_numpy(x), limits)
    wanted: Array = cast(x, getattr(backend.xp, backend.index_dtype), xp=backend.xp)
    return wanted


def host_integers(x: Any, limits: Range) -> np.ndarray:
    """The same, on NumPy as int64."""
    host = _to_host(limits.field, x)
    _check_form(host, limits.field)
    _check_values(host, limits)
    return host.astype(np.int64)


def _check_form(x: Any, field: str) -> None:
    shape = tuple(x.shape)
    if len(shape) != 2:
        raise ValueError(f"{field} has shape {shape}; it must be (batch, time)")
    if 0 in shape:
        raise ValueError(f"{field} has shape {shape}; batch and time must be 1 or more")
    if "int" not in _kind(x):
        raise ValueError(f"{field} has dtype {_kind(x)}; it must be an integer dtype")


def _check_values(x: np.ndarray, limits: Range) -> None:
    counted = x if limits.besides is None else x[x != limits.besides]
    for extreme in (int(counted.min(initial=0)), int(counted.max(initial=0))):
        if not 0 <= extreme < limits.high:
            most = f"{limits.what} {limits.high}"
            besides = "" if limits.besides is None else f"; {limits.besides} marks one that is left out"
            raise ValueError(
                f"{limits.field} holds {extreme}; it must be 0 or more and below {most}{besides}"
            )


def as_mask(mask: Any, shape: tuple[int, ...], backend: Backend, device: Any) -> Array:
    """A mask (b, t), True (or 1) on real tokens, False (or 0) on padding, as bool of the backend."""
    if not _is_native(mask, backend):
        return backend.from_numpy(host_mask(mask, shape), device=device)
    _check_mask_form(mask, shape)
    if backend.is_concrete(mask):
        _check_mask_values(backend.to_numpy(mask))
    bools: Array = mask if _kind(mask) == "bool" else mask != 0
    return bools


def host_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The same, on NumPy."""
    host = _to_host("mask", mask)
    _check_mask_form(host, shape)
    _check_mask_values(host)
    return host.astype(bool)


def _check_mask_form(mask: Any, shape: tuple[int, ...]) -> None:
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(f"mask has shape {tuple(mask.shape)}; ids has {tuple(shape)}")
    if _kind(mask) != "bool" and "int" not in _kind(mask):
        raise ValueError(
            f"mask has dtype {_kind(mask)}; it must be bool (True on real tokens) or integers 0 and 1"
        )


def _check_mask_values(mask: np.ndarray) -> None:
    if mask.dtype != bool and not ((mask == 0) | (mask == 1)).all():
        wrong = mask[(mask != 0) & (mask != 1)][0]
        raise ValueError(f"mask holds {wrong}; it must be 0 (padding) or 1 (a real token)")


def _is_native(x: Any, backend: Backend) -> bool:
    return not isinstance(x, np.ndarray) and backend.is_array(x)


def _to_host(field: str, x: Any) -> np.ndarray:
    """Lists, NumPy arrays and arrays of any known library on NumPy."""
    if not isinstance(x, np.ndarray) and hasattr(x, "dtype") and hasattr(x, "shape"):
        owner = registry.backend_of(x)
        if not owner.is_concrete(x):
            raise ValueError(
                f"{field} is an array of {owner.name} without values, and the parameters are of another "
                f"library: pass xp=, or convert them with params.to"
            )
        x = owner.to_numpy(x)
    try:
        return np.asarray(x)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{field} is not a rectangular array of integers: {reason}") from None


def _kind(x: Array) -> str:
    return bare_name(x.dtype)
