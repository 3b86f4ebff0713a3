"""The edge of the model: arguments are checked here, once, and converted to arrays of one library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxp import registry
from tinyxp.dtypes import bare_name
from tinyxp.ops import IGNORED, Kernels, cast, untapped
from tinyxp.params import Params
from tinyxp.registry import Backend
from tinyxp.typing import Array, Namespace, Tap


class Inputs(NamedTuple):
    """Checked arguments of one pass, all arrays of ``params.xp``."""

    params: Params
    ids: Array
    positions: Array | None
    mask: Array | None


def as_params(params: Params, xp: Namespace | None) -> Params:
    """Return params as arrays of ``xp``, or unchanged if xp is None or their own."""
    if not isinstance(params, Params):
        raise ValueError(f"params is a {type(params).__name__}; it must be tinyxp.Params")
    if xp is None or registry.backend(xp) is params.backend:
        return params
    return params.to(xp)


def check_inputs(params: Params, ids: Any, positions: Any, mask: Any, xp: Namespace | None) -> Inputs:
    """Check and convert the arguments that forward, loss and extend share; ValueError naming a wrong one."""
    params = as_params(params, xp)
    config, backend, device = params.config, params.backend, params.device
    ids = as_integers(ids, Bounds("ids", config.vocab_size, "the vocabulary size"), backend, device)
    b, t = ids.shape
    if positions is not None:
        largest = Bounds("positions", 2**31, "the limit")  # int32's, the narrowest index of a backend
        learned = Bounds("positions", config.max_seq_len, "max_seq_len")
        bounds = learned if config.position == "learned" else largest
        positions = as_integers(positions, bounds, backend, device)
        if positions.shape not in ((1, t), (b, t)):
            raise ValueError(f"positions has shape {tuple(positions.shape)}; ids has {(b, t)}")
    if mask is not None:
        mask = as_mask(mask, (b, t), backend, device)
    return Inputs(params, ids, positions, mask)


def as_kernels(kernels: Any) -> Kernels:
    """Return Kernels from None, a Kernels record, or a mapping of names in ``ops`` to functions."""
    if kernels is None:
        return Kernels()
    if isinstance(kernels, Kernels):
        return kernels
    if not isinstance(kernels, Mapping):
        raise ValueError(f"kernels is {kernels!r}; it must map names in tinyxp.ops to functions")
    for name, function in kernels.items():
        if name not in Kernels._fields:
            raise ValueError(f"kernels names {name!r}; known are {', '.join(Kernels._fields)}")
        if not callable(function):
            raise ValueError(f"kernels maps {name!r} to {function!r}; it must be a function")
    return Kernels(**kernels)


def as_tap(tap: Any) -> Tap:
    """Return a tap from None or a function of a name and an array."""
    if tap is not None and not callable(tap):
        raise ValueError(f"tap is {tap!r}; it must be a function of a name and an array")
    return tap or untapped


def as_targets(targets: Any, inputs: Inputs) -> Array:
    """Return targets (b, t) as the library's own: ids of the vocabulary, or -100 for no target."""
    params, shape = inputs.params, tuple(inputs.ids.shape)
    bounds = Bounds("targets", params.config.vocab_size, "the vocabulary size", besides=IGNORED)
    checked = as_integers(targets, bounds, params.backend, params.device)
    if tuple(checked.shape) != shape:
        raise ValueError(f"targets has shape {tuple(checked.shape)}; ids has {shape}")
    return checked


class Bounds(NamedTuple):
    """The integers that a field may hold: from 0 to below ``high``, which ``what`` names, or ``besides``."""

    field: str
    high: int
    what: str
    besides: int | None = None


def as_integers(x: Any, bounds: Bounds, backend: Backend, device: Any) -> Array:
    """Return integers (b, t) within bounds, b and t at least 1, in the dtype that the backend indexes with.

    Lists and arrays of other libraries are checked on NumPy, before any library could wrap or clip them. The
    backend's own arrays are checked if their values can be read: not under jit, nor without memory.
    """
    if not _is_native(x, backend):
        return backend.from_numpy(as_host_integers(x, bounds).astype(backend.index_dtype), device=device)
    _check_form(x, bounds.field)
    if backend.is_concrete(x):
        _check_values(backend.to_numpy(x), bounds)
    indices: Array = cast(x, getattr(backend.xp, backend.index_dtype), xp=backend.xp)
    return indices


def as_host_integers(x: Any, bounds: Bounds) -> np.ndarray:
    """Return integers (b, t) within bounds, b and t at least 1, on NumPy as int64."""
    host = _to_host(bounds.field, x)
    _check_form(host, bounds.field)
    _check_values(host, bounds)
    return host.astype(np.int64)


def _check_form(x: Any, field: str) -> None:
    shape = tuple(x.shape)
    if len(shape) != 2:
        raise ValueError(f"{field} has shape {shape}; it must be (batch, time)")
    if 0 in shape:
        raise ValueError(f"{field} has shape {shape}; batch and time must be 1 or more")
    if "int" not in _kind(x):
        raise ValueError(f"{field} has dtype {_kind(x)}; it must be an integer dtype")


def _check_values(x: np.ndarray, bounds: Bounds) -> None:
    counted = x if bounds.besides is None else x[x != bounds.besides]
    for extreme in (int(counted.min(initial=0)), int(counted.max(initial=0))):
        if not 0 <= extreme < bounds.high:
            most = f"{bounds.what} {bounds.high}"
            besides = "" if bounds.besides is None else f"; {bounds.besides} marks an excluded position"
            raise ValueError(
                f"{bounds.field} holds {extreme}; it must be 0 or more and below {most}{besides}"
            )


def as_mask(mask: Any, shape: tuple[int, ...], backend: Backend, device: Any) -> Array:
    """Return a mask (b, t), True (or 1) on real tokens, False (or 0) on padding, as bool of the backend."""
    if not _is_native(mask, backend):
        return backend.from_numpy(as_host_mask(mask, shape), device=device)
    _check_mask_form(mask, shape)
    if backend.is_concrete(mask):
        _check_mask_values(backend.to_numpy(mask))
    bools: Array = mask if _kind(mask) == "bool" else mask != 0
    return bools


def as_host_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask (b, t), True on real tokens, False on padding, as bool on NumPy."""
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
    """Convert lists, NumPy arrays and arrays of any known library to NumPy."""
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
