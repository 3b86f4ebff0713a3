"""Specifications of sides: MODEL@jax:float32, hf:MODEL, trace.npz, package.module:function."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp import plugins, registry
from tinyxp.adoption import adopt
from tinyxp.doctor.function_side import FunctionSide, describe_failure
from tinyxp.doctor.sides import ModelSide, PluginSide, RecordedSide, Side
from tinyxp.doctor.trace_files import is_trace, read_trace
from tinyxp.doctor.traces import Recorded
from tinyxp.dtypes import DTYPES, dtype_name
from tinyxp.errors import CheckpointError
from tinyxp.params import Params

FORMS = "MODEL@BACKEND:DTYPE, hf:MODEL, a trace (.npz, .safetensors), package.module:function"
_TARGET = re.compile(r"(?P<backend>[A-Za-z_][\w.]*)?(?P<plus>(\+\w+)*)(:(?P<dtype>\w+))?")
_FUNCTION = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py):(?P<function>[A-Za-z_][\w.]*)")


class _Target(NamedTuple):
    """What a specification says after its last @."""

    backend: str | None = None
    flags: frozenset[str] = frozenset()
    dtype: str | None = None

    def check_only_dtype(self, text: str, reason: str) -> None:
        """Raise ValueError if there is more than a dtype."""
        if self.backend or self.flags:
            raise ValueError(f"{text}: {reason}; after @ only :DTYPE may follow")


def as_side(source: Any, name: str = "") -> Side:
    """Return a side from a Side, a specification (see ``parse``), Params, a ``Recorded`` trace or a function.

    Raise ValueError for anything else.
    """
    if isinstance(source, Side):
        return source
    if isinstance(source, Params):
        dtype, backend = dtype_name(source.dtype), source.backend
        return ModelSide(name or f"params@{backend.name}", dtype, given=source, backend=backend)
    if isinstance(source, Recorded):
        return RecordedSide(name or "trace", recorded=source)
    if callable(source):
        return FunctionSide(name or getattr(source, "__qualname__", type(source).__name__), function=source)
    if isinstance(source, (str, Path)):
        return parse(str(source))
    raise ValueError(
        f"a side is {source!r}; it must be a specification such as 'MODEL@jax:float32', Params, a Recorded "
        "trace or a function"
    )


def parse(text: str) -> Side:
    """Return the side that a specification names.

    ``MODEL@BACKEND:DTYPE``: a model as ``tinyxp.load`` takes it, run by tinyxp. The backend defaults to
    NumPy, the dtype to the file's own; ``+kernels`` and ``+jit`` may follow the backend.
    ``hf:MODEL@:DTYPE``: transformers' own model; other prefixes come from the entry-point group
    ``tinyxp.sides``. ``FILE.npz`` or ``.safetensors``: a recorded trace.
    ``package.module:function`` or ``file.py:function``: a function from ids to logits or to a trace, imported
    with the current folder first. ``@:DTYPE`` after these names the dtype that they compute in.
    Raise ValueError naming the text and what is wrong with it.
    """
    if not text:
        raise ValueError(f"a side is empty; it must be {FORMS}")
    what, target = _split(text)
    if prefix := _prefix(what):
        return _plugin_side(text, prefix, what.removeprefix(f"{prefix}:"), target)
    path = Path(what)
    if is_trace(path):
        target.check_only_dtype(text, "a recorded trace has no backend")
        recorded = read_trace(path)
        return RecordedSide(text, target.dtype, recorded=recorded)
    match = _FUNCTION.fullmatch(what)
    if match is not None and not path.exists():
        target.check_only_dtype(text, "a function has no backend")
        function = _import_function(text, match["module"], match["function"])
        return FunctionSide(text, target.dtype, function=function)
    if path.suffix.lower() == ".safetensors" and path.is_file():
        raise CheckpointError(
            f"{path}: has no entry 'ids', so it is no trace; a model is named by its folder"
        )
    if unknown := sorted(target.flags - {"kernels", "jit"}):
        raise ValueError(f"{text}: after '+' is {unknown[0]!r}; it must be kernels or jit")
    backend = registry.backend(np) if target.backend is None else adopt(target.backend)
    kernels, jit = "kernels" in target.flags, "jit" in target.flags
    return ModelSide(text, target.dtype, path=what, backend=backend, kernels=kernels, jit=jit)


def _prefix(what: str) -> str:
    """Return the prefix of a plugin's side; empty if there is none."""
    prefix, colon, _ = what.partition(":")
    return prefix if colon and prefix in plugins.entries(plugins.SIDES) else ""


def _plugin_side(text: str, prefix: str, path: str, target: _Target) -> Side:
    if not path:
        raise ValueError(f"{text}: a model, a folder or a file, must follow {prefix}:")
    if target.backend is not None and not target.flags:
        only = plugins.load(plugins.SIDES, prefix).BACKEND
        if target.backend == only:
            target = target._replace(backend=None)
    target.check_only_dtype(text, f"{prefix}: chooses its own backend")
    return PluginSide(text, target.dtype, plugin=prefix, path=path)


def _split(text: str) -> tuple[str, _Target]:
    """Return what precedes the last @, and what follows it."""
    what, at, after = text.rpartition("@")
    path = text.removeprefix(f"{_prefix(text) or text}:")
    in_path = os.path.exists(path) or (".py:" in after and os.path.exists(path.rpartition(":")[0]))
    if not at or in_path:
        return text, _Target()
    match = _TARGET.fullmatch(after)
    if match is None or not after or not what:
        raise ValueError(f"{text}: after @ is {after!r}; it must be BACKEND, BACKEND:DTYPE or :DTYPE")
    dtype = match["dtype"]
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"{text}: dtype is {dtype!r}; known are {', '.join(DTYPES)}")
    return what, _Target(match["backend"], frozenset(match["plus"].split("+")[1:]), dtype)


def _import_function(text: str, module: str, function: str) -> Callable[..., Any]:
    value: Any = _import_file(text, module) if module.endswith(".py") else _import_module(text, module)
    for attribute in function.split("."):
        if not hasattr(value, attribute):
            raise ValueError(f"{text}: {module} has no {function!r}")
        value = getattr(value, attribute)
    if not callable(value):
        raise ValueError(f"{text}: is a {type(value).__name__}; it must be a function of ids")
    return value  # type: ignore[no-any-return]


def _import_module(text: str, name: str) -> Any:
    """Import a module, from the current folder too."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _execute(text, lambda: importlib.import_module(name))
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{text}: there is no module {error.name!r}, nor such a file") from None
        raise


def _import_file(text: str, name: str) -> Any:
    """Import a file; what it imports from its own folder is its own too, as another port has others."""
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"{text}: there is no file {name}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    folder, before = str(path.parent.resolve()), set(sys.modules)
    sys.path.insert(0, folder)
    try:
        _execute(text, lambda: loader.exec_module(module))
    finally:
        sys.path.remove(folder)
        for other in sys.modules.keys() - before:
            if str(getattr(sys.modules[other], "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[other]
    return module


def _execute(text: str, run: Callable[[], Any]) -> Any:
    """Run the code of a user's module; raise ValueError for anything that it raises except import errors."""
    try:
        return run()
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(describe_failure(f"{text}: importing it raised", error)) from error
