"""Recorder: the trace of a decoder in whatever framework, one call for each value; and hooks for torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tinyxp import registry
from tinyxp.doctor.points import axes, order, ordered
from tinyxp.doctor.recorded import check_dtype, form, write_trace
from tinyxp.dtypes import DTYPES, bare_name
from tinyxp.registry import Backend

T = TypeVar("T")


class Recorder:
    """``record = Recorder()``; then ``x = record("blocks.0.attn.q", x)`` wherever a value is a trace point.

    Takes arrays of NumPy, torch, JAX (also within jax.jit and jax.grad) and every other library that has an
    adapter, or that ``numpy.asarray`` takes. Values are copied, so they may be changed in place afterwards;
    bfloat16 is kept as float32, which holds each of its values.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self._again: list[str] = []  # what compiled code told twice, where nothing can be raised
        self._wait: Callable[[], None] = _nothing

    def __call__(self, name: str, x: T) -> T:
        """x itself, recorded under that name.

        Raises ValueError for a name that is no trace point or was recorded before, for a number of axes
        that the point does not have, for dtypes that are not floating, and for arrays without values, such
        as under torch.compile. Shapes are those of ``tinyxp.trace``; one sequence may lack the batch axis.
        """
        if not isinstance(name, str):
            raise ValueError(f"trace point is {name!r}; it must be a string such as 'blocks.0.attn.q'")
        order(name)
        given: Any = x
        owner = _owner(given)
        shown = np.asarray(given) if owner is None else given
        _check_axes(name, tuple(shown.shape))
        if owner is None or owner.is_concrete(given):
            if name in self._arrays:
                raise ValueError(_twice(name))
            host = shown if owner is None else owner.to_numpy(given)
            self._arrays[name] = check_dtype(name, np.array(host))
        else:
            self._later(name, given, owner)
        return x

    def _later(self, name: str, x: Any, owner: Backend) -> None:
        """Records x whenever compiled code computes it."""
        if bare_name(x.dtype) not in DTYPES:
            raise ValueError(f"trace point {name} has dtype {bare_name(x.dtype)}; it must be floating")

        def told(values: np.ndarray) -> None:
            if name in self._arrays:
                self._again.append(name)
            self._arrays[name] = check_dtype(name, values)

        try:
            owner.deliver(x, told)
        except ValueError as error:
            raise ValueError(f"trace point {name}: {error}") from None
        self._wait = owner.await_callbacks

    @property
    def points(self) -> dict[str, np.ndarray]:
        """Trace point -> array, in the order of the computation, once compiled code has told all of it.

        Raises ValueError where that told a point twice.
        """
        self._wait()
        if self._again:
            raise ValueError(
                f"{_twice(ordered(self._again)[0])}; under jax.vmap and jax.lax.scan record what comes out"
            )
        return {name: self._arrays[name] for name in ordered(self._arrays)}

    def clear(self) -> None:
        """Begins anew: forgets what was recorded."""
        self._wait()
        self._arrays.clear()
        self._again.clear()

    def save(self, path: Path | str, *, ids: Any, mask: Any = None) -> None:
        """Writes the trace as ``write_trace`` does. ids (b, t) or (t,) are what went in, mask (b, t) is True
        on real tokens; lists and arrays of any library. Raises ValueError where nothing was recorded.
        """
        points = self.points
        if not points:
            raise ValueError("nothing was recorded; what was compiled with another Recorder tells that one")
        write_trace(path, points, ids=_host(ids), mask=None if mask is None else _host(mask))


def record_torch(
    module: Any, points: Mapping[str, str | tuple[str, ...]], /, *args: Any, **kwargs: Any
) -> dict[str, np.ndarray]:
    """Runs ``module(*args, **kwargs)``, a torch module as it is, and returns trace point -> array.

    ``points`` maps the paths of modules to the trace points that they compute:
    ``"model.layers.{i}.self_attn.q_proj": "blocks.{i}.attn.q"``, where ``{i}`` is each number there is.
    ``"PATH:input"`` is what goes into the module instead. Of several tensors the first is meant. A tuple of
    points takes equal parts of the last axis, as q, k and v of GPT-2 stand in one.

    Raises ValueError naming a path that no module has, a module that did not run or ran twice, and a value
    that does not fit its point. The hooks are removed in any case.
    """
    if not hasattr(module, "register_forward_hook"):
        raise ValueError(f"module is a {type(module).__name__}; it must be a torch.nn.Module")
    modules = dict(module.named_modules(remove_duplicate=False))
    record = Recorder()
    wanted: list[tuple[str, tuple[str, ...]]] = []
    for pattern, names in points.items():
        wanted += _matched(pattern, (names,) if isinstance(names, str) else tuple(names), list(modules))
    with ExitStack() as undo:
        for place, names in wanted:
            path, _, side = place.partition(":")
            keep = partial(_keep, record, place, names)
            if side:
                handle = modules[path].register_forward_pre_hook(partial(_on_input, keep), with_kwargs=True)
            else:
                handle = modules[path].register_forward_hook(partial(_on_output, keep))
            undo.callback(handle.remove)
        module(*args, **kwargs)
    found = record.points
    for place, names in wanted:
        if names[0] not in found:
            raise ValueError(f"{place} did not run: nothing called this module")
    return found


def _matched(pattern: str, names: tuple[str, ...], paths: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each place that a pattern means, with its trace points."""
    path, colon, side = pattern.partition(":")
    if colon and side != "input":
        raise ValueError(f"{pattern}: after ':' stands {side!r}; it may be input")
    first, *others = map(re.escape, path.split("{i}"))
    regex = re.compile(
        first + "".join((r"(?P<i>\d+)" if n == 0 else "(?P=i)") + x for n, x in enumerate(others))
    )
    found = []
    for candidate in paths:
        if match := regex.fullmatch(candidate):
            number = match["i"] if others else "{i}"
            found.append((candidate + colon + side, tuple(name.replace("{i}", number) for name in names)))
    if not found:
        close = get_close_matches(path.replace("{i}", "0"), paths, cutoff=0.4)
        raise ValueError(
            f"no module is at {path!r}; {'close are ' + ', '.join(close) if close else 'none is close'}"
        )
    for name in (name for _, names in found for name in names):
        order(name)
    return found


def _keep(record: Recorder, place: str, names: tuple[str, ...], values: Any) -> None:
    """Records the first tensor among ``values``, in as many equal parts as there are names."""
    x = _first_array(values)
    if x is None:
        raise ValueError(f"{place} has no tensor")
    size, rest = divmod(x.shape[-1] if x.ndim else 0, len(names))
    if rest:
        raise ValueError(f"{place} has shape {tuple(x.shape)}, which is not {len(names)} equal parts")
    try:
        for n, name in enumerate(names):
            record(name, x if len(names) == 1 else x[..., n * size : (n + 1) * size])
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _on_output(keep: Callable[[Any], None], module: Any, args: Any, output: Any) -> None:
    keep(output)


def _on_input(keep: Callable[[Any], None], module: Any, args: Any, kwargs: Any) -> None:
    keep((args, kwargs))


def _first_array(values: Any) -> Any:
    """The first array in nested tuples, lists and mappings; None where there is none."""
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if not isinstance(values, (tuple, list)):
        return values if hasattr(values, "dtype") else None
    return next((x for x in map(_first_array, values) if x is not None), None)


def _check_axes(name: str, shape: tuple[int, ...]) -> None:
    if len(axes(name)) - len(shape) not in (0, 1):
        raise ValueError(
            f"trace point {name} has shape {shape}; {form(name)} is wanted, or the same without b"
        )


def _twice(name: str) -> str:
    return f"trace point {name} was recorded before in this run; record.clear() begins anew"


def _owner(x: Any) -> Backend | None:
    """The adapter of x's library; None where there is none."""
    found = registry.owner_of(x)
    if found is None:
        registry.load_imported()
        found = registry.owner_of(x)
    return found


def _host(x: Any) -> np.ndarray:
    owner = _owner(x)
    return np.asarray(x) if owner is None else owner.to_numpy(x)


def _nothing() -> None:
    """What there is to wait for where nothing was compiled."""
