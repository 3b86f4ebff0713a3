"""Recorder: a trace of a decoder in any framework, one call for each value, or hooks on its modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tinyxp import plugins
from tinyxp.doctor.points import axes, form, sort_points
from tinyxp.doctor.trace_files import write_trace
from tinyxp.doctor.traces import Points, find_backend, to_floats
from tinyxp.dtypes import DTYPES, bare_name
from tinyxp.registry import Backend

T = TypeVar("T")


class Recorder:
    """``record = Recorder()``, then ``x = record("blocks.0.attn.q", x)`` at each trace point.

    It takes arrays of NumPy, torch, JAX (also under jax.jit and jax.grad), of every other library with an
    adapter, and all that ``numpy.asarray`` takes. Values are copied, so changing them in place later is safe.
    bfloat16 is stored as float32, which holds all its values.
    """

    def __init__(self) -> None:
        self._arrays: Points = {}
        self._duplicates: list[str] = []  # from compiled code, which cannot raise
        self._wait: Callable[[], None] = lambda: None  # for compiled code that still runs

    def __call__(self, name: str, x: T) -> T:
        """Record x under a trace point's name and return x itself.

        Shapes are those of ``tinyxp.trace``; a single sequence may lack the batch axis. Raise ValueError for
        a name that is unknown or already recorded, for a wrong number of axes, for a dtype that is not
        floating, and for an array without values, as under torch.compile.
        """
        if not isinstance(name, str):
            raise ValueError(f"trace point is {name!r}; it must be a string such as 'blocks.0.attn.q'")
        sort_points([name])  # raises for an unknown one
        array: Any = x
        owner = find_backend(array)
        if owner is None:
            array = np.asarray(array)
        if len(axes(name)) - len(array.shape) not in (0, 1):
            raise ValueError(
                f"trace point {name} has shape {tuple(array.shape)}; it must be {form(name)}, b is optional"
            )
        if owner is None or owner.is_concrete(array):
            if name in self._arrays:
                raise ValueError(_duplicate(name))
            self._arrays[name] = to_floats(name, np.array(array if owner is None else owner.to_numpy(array)))
        else:
            self._record_later(name, array, owner)
        return x

    def _record_later(self, name: str, x: Any, owner: Backend) -> None:
        """Record x whenever compiled code computes it."""
        if bare_name(x.dtype) not in DTYPES:
            raise ValueError(f"trace point {name} has dtype {bare_name(x.dtype)}; it must be floating")

        def store(values: np.ndarray) -> None:
            if name in self._arrays:
                self._duplicates.append(name)
            self._arrays[name] = to_floats(name, values)

        try:
            owner.deliver(x, store)
        except ValueError as error:
            raise ValueError(f"trace point {name}: {error}") from None
        self._wait = owner.await_callbacks

    @property
    def points(self) -> Points:
        """Trace point -> array, in the order of the computation, once compiled code has computed all of them.

        Raises ValueError if compiled code computed a point twice.
        """
        self._wait()
        if self._duplicates:
            raise ValueError(
                f"{_duplicate(sort_points(self._duplicates)[0])}; "
                "with jax.vmap and jax.lax.scan, record what they return"
            )
        return {name: self._arrays[name] for name in sort_points(self._arrays)}

    def clear(self) -> None:
        """Forget what was recorded, before the next run."""
        self._wait()
        self._arrays.clear()
        self._duplicates.clear()

    def save(self, path: Path | str, *, ids: Any, mask: Any = None) -> None:
        """Write the trace with its input, as ``write_trace`` does.

        ids are (b, t) or (t,), mask (b, t) is True on real tokens: lists, or arrays of any library. Raise
        ValueError if nothing was recorded.
        """
        points = self.points
        if not points:
            raise ValueError(
                "nothing was recorded; code that was compiled with another Recorder fills that one"
            )
        write_trace(path, points, ids=_to_host(ids), mask=None if mask is None else _to_host(mask))


def record_module(
    module: Any, points: Mapping[str, str | tuple[str, ...]], /, *args: Any, **kwargs: Any
) -> dict[str, np.ndarray]:
    """Run ``module(*args, **kwargs)``, such as a torch.nn.Module, and return trace point -> array.

    ``points`` maps paths of submodules to the trace points that they compute:
    ``"model.layers.{i}.self_attn.q_proj": "blocks.{i}.attn.q"``, where ``{i}`` stands for every number.
    ``"PATH:input"`` records the module's input. Of several tensors the first is recorded. A tuple of
    points splits the last axis into equal parts, as GPT-2 computes q, k and v with one matrix.

    Raise ValueError naming a path without a module, a module that did not run or ran twice, and a value
    that does not fit its point. The hooks are always removed.
    """
    hooks = _hooks_for(module)
    paths = hooks.module_paths(module)
    targets: list[tuple[str, tuple[str, ...]]] = []
    for pattern, names in points.items():
        targets += _match(pattern, (names,) if isinstance(names, str) else tuple(names), paths)
    record = Recorder()
    callbacks = [(target, partial(_record_parts, record, target, names)) for target, names in targets]
    hooks.run_with_hooks(module, callbacks, args, kwargs)
    for target, names in targets:
        if names[0] not in record.points:
            raise ValueError(f"{target} did not run: nothing called this module")
    return record.points


def _hooks_for(module: Any) -> Any:
    """Return the recorder of the library that the module's class comes from."""
    known = plugins.entries(plugins.RECORDERS)
    for base in type(module).__mro__:
        if (library := base.__module__.partition(".")[0]) in known:
            return plugins.load(plugins.RECORDERS, library)
    raise ValueError(f"module is a {type(module).__name__}; it must be a module of {', '.join(known)}")


def _match(pattern: str, names: tuple[str, ...], paths: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each target, PATH or PATH:input, that a pattern matches, with its trace points."""
    path, colon, what = pattern.partition(":")
    if colon and what != "input":
        raise ValueError(f"{pattern}: after ':' is {what!r}; it must be input")
    first, *others = map(re.escape, path.split("{i}"))
    regex = re.compile(
        first + "".join((r"(?P<i>\d+)" if n == 0 else "(?P=i)") + x for n, x in enumerate(others))
    )
    matches = []
    for candidate in paths:
        if match := regex.fullmatch(candidate):
            number = match["i"] if others else "{i}"
            matches.append((candidate + colon + what, tuple(name.replace("{i}", number) for name in names)))
    if not matches:
        close = get_close_matches(path.replace("{i}", "0"), paths, cutoff=0.4)
        raise ValueError(f"no module is at {path!r}; similar: {', '.join(close) or 'none'}")
    for _, points in matches:
        sort_points(points)  # raises for an unknown one
    return matches


def _record_parts(record: Recorder, target: str, names: tuple[str, ...], values: Any) -> None:
    """Record the first array among ``values``, split into as many equal parts as there are names."""
    x = _first_array(values)
    if x is None:
        raise ValueError(f"{target} has no tensor")
    size, rest = divmod(x.shape[-1] if x.ndim else 0, len(names))
    if rest:
        raise ValueError(f"{target} has shape {tuple(x.shape)}, which is not {len(names)} equal parts")
    try:
        for n, name in enumerate(names):
            record(name, x if len(names) == 1 else x[..., n * size : (n + 1) * size])
    except ValueError as error:
        raise ValueError(f"{target}: {error}") from None


def _first_array(values: Any) -> Any:
    """Return the first array in nested tuples, lists and mappings; None if there is none."""
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if not isinstance(values, (tuple, list)):
        return values if hasattr(values, "dtype") else None
    return next((x for x in map(_first_array, values) if x is not None), None)


def _duplicate(name: str) -> str:
    return f"trace point {name} was already recorded in this run; call record.clear() before the next one"


def _to_host(x: Any) -> np.ndarray:
    owner = find_backend(x)
    return np.asarray(x) if owner is None else owner.to_numpy(x)
