"""How sides are written: MODEL@jax:float32, hf:MODEL, trace.npz, package.module:function."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinyxp.adoption import adopt
from tinyxp.doctor.recorded import is_trace, read_trace
from tinyxp.doctor.sides import Function, Model, Record, Side, Transformers, failure
from tinyxp.dtypes import DTYPES
from tinyxp.errors import CheckpointError

FORMS = "MODEL@BACKEND:DTYPE, hf:MODEL, a trace (.npz, .safetensors), package.module:function"
_WHERE = re.compile(r"(?P<backend>[A-Za-z_][\w.]*)?(?P<plus>(\+\w+)*)(:(?P<dtype>\w+))?")
_FUNCTION = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py):(?P<function>[A-Za-z_][\w.]*)")


def parse(text: str) -> Side:
    """The side that a text names.

    ``MODEL@BACKEND:DTYPE``: a model as ``tinyxp.load`` takes it, run here; the backend is NumPy and the dtype
    the file's own where they are left out; after the backend may stand ``+kernels`` and ``+jit``.
    ``hf:MODEL@:DTYPE``: transformers' own. ``FILE.npz`` or ``.safetensors``: a recorded trace.
    ``package.module:function`` or ``file.py:function``: a function from ids to logits or to a trace, imported
    with the current folder first; ``@:DTYPE`` after these says what they compute in.
    Raises ValueError naming the text and what is wrong with it.
    """
    if not text:
        raise ValueError(f"a side is empty; it may be {FORMS}")
    what, where = _split(text)
    backend, plus, dtype = where["backend"], where["plus"], where["dtype"]
    if what.startswith("hf:"):
        _refuse(text, backend not in (None, "torch") or plus, "transformers runs on torch alone")
        if what == "hf:":
            raise ValueError(f"{text}: after hf: stands the model, a folder or a file")
        return Transformers(text, dtype, path=what.removeprefix("hf:"))
    path = Path(what)
    if is_trace(path):
        _refuse(text, backend or plus, "a recorded trace runs on no backend")
        return Record(text, dtype, recorded=read_trace(path))
    function = _FUNCTION.fullmatch(what)
    if function is not None and not path.exists():
        _refuse(text, backend or plus, "a function runs where it likes")
        return Function(text, dtype, function=_imported(text, function["module"], function["function"]))
    if path.suffix.lower() == ".safetensors" and path.is_file():
        raise CheckpointError(
            f"{path}: has no entry 'ids', so it is no trace; a model is named by its folder"
        )
    flags = set(plus.split("+")[1:])
    if unknown := sorted(flags - {"kernels", "jit"}):
        raise ValueError(f"{text}: after '+' may stand kernels and jit, not {unknown[0]!r}")
    adapter = adopt(backend or "numpy")
    return Model(text, dtype, path=what, backend=adapter, kernels="kernels" in flags, jit="jit" in flags)


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """What stands before the last @ and what it says after it."""
    nothing = {"backend": None, "plus": "", "dtype": None}
    what, at, where = text.rpartition("@")
    path = text.removeprefix("hf:")
    in_path = os.path.exists(path) or (".py:" in where and os.path.exists(path.rpartition(":")[0]))
    if not at or in_path:
        return text, nothing
    found = _WHERE.fullmatch(where)
    if found is None or not where or not what:
        raise ValueError(f"{text}: after @ stands {where!r}; it must be BACKEND, BACKEND:DTYPE or :DTYPE")
    if found["dtype"] is not None and found["dtype"] not in DTYPES:
        raise ValueError(f"{text}: dtype is {found['dtype']!r}; known are {', '.join(DTYPES)}")
    return what, nothing | {k: v for k, v in found.groupdict().items() if v is not None}


def _refuse(text: str, wrong: Any, because: str) -> None:
    if wrong:
        raise ValueError(f"{text}: {because}; after @ only :DTYPE may stand")


def _imported(text: str, module: str, function: str) -> Callable[..., Any]:
    found: Any = _module(text, module)
    for part in function.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{text}: {module} has no {function!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{text}: is a {type(found).__name__}; it must be a function of ids")
    return found  # type: ignore[no-any-return]


def _module(text: str, name: str) -> Any:
    if not name.endswith(".py"):
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            return _executing(text, lambda: importlib.import_module(name))
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):
                raise ValueError(f"{text}: there is no module {error.name!r}, nor such a file") from None
            raise
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"{text}: there is no file {name}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loader = spec.loader
    found = importlib.util.module_from_spec(spec)
    folder, before = str(path.parent.resolve()), set(sys.modules)
    sys.path.insert(0, folder)
    try:
        _executing(text, lambda: loader.exec_module(found))
    finally:
        sys.path.remove(folder)
        for one in sys.modules.keys() - before:  # what stands beside this port: another has its own
            if str(getattr(sys.modules[one], "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[one]
    return found


def _executing(text: str, execute: Callable[[], Any]) -> Any:
    """What running somebody else's module gives; ValueError for whatever it raises."""
    try:
        return execute()
    except ImportError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(failure(f"{text}: importing it raised", error)) from error
