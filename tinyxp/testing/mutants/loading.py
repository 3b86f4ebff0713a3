"""Fresh copies of tinyxp's modules with a change of their source; jit would miss a monkeypatch."""

from __future__ import annotations

import builtins
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from tinyxp import registry
from tinyxp.params import Params
from tinyxp.testing import subjects
from tinyxp.testing.mutants.record import MUTANTS, Mutant, Patch
from tinyxp.testing.subject import Decoder, Modules

COPIED = (
    "ops",
    "params",
    "inputs",
    "cache",
    "model",
    "tracing",
    "sampling",
    "fusion",
    "decoding",
    "generation",
)
"""What is copied, each after those that it imports; everything else is tinyxp's own."""

OWN_DECODER = (
    Patch(
        "decoding",
        "(params.backend.decoder or Decoder)(",
        "(InPlaceDecoder if params.backend.has_views else Decoder)(",
    ),
    Patch(
        "decoding",
        "Kernels(**params.backend.kernels)",
        "Kernels(**{name: f for name, f in params.backend.kernels.items() "
        'if name == "write_cache" and params.backend.has_views})',
    ),
)
"""Every copy generates by its own decoder and operations, a backend's not being the source that is judged;
but where slices are views, the decoder wants a kernel that writes in place."""

_numbers = itertools.count()


def sources(patches: Sequence[Patch] = ()) -> dict[str, str]:
    """The source of every module that is copied, changed. Raises ValueError where a patch does not fit."""
    found = {name: _source(name) for name in COPIED}
    for patch in (*patches, *OWN_DECODER):
        if patch.module not in found:
            raise ValueError(f"patch is of {patch.module!r}; only {', '.join(COPIED)} are copied")
        found[patch.module] = patch.apply(found[patch.module])
    return found


@cache
def _source(name: str) -> str:
    return inspect.getsource(import_module(f"tinyxp.{name}"))


@cache
def _code(source: str, label: str) -> CodeType:
    return compile(source, label, "exec")


def load(mutant: Mutant | None = None) -> Modules:
    """A fresh copy of the modules with a mutant's change, or with none.

    The class Params stays tinyxp's own, which JAX and torch know as a pytree. The copies are entered in
    ``sys.modules`` under names of their own, where dataclasses and compilers look for them.
    """
    package = f"{__package__}.copy{next(_numbers)}"
    patches = mutant.patches if mutant else ()
    copies: dict[str, ModuleType] = {}
    for name, source in sources(patches).items():
        module = ModuleType(f"{package}.{name}")
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": _importer(copies)}
        sys.modules[module.__name__] = module
        changed = any(patch.module == name for patch in patches)
        exec(
            _code(source, f"<{mutant.name if mutant and changed else 'copy'}: tinyxp/{name}.py>"),
            vars(module),
        )
        if name == "params":
            module.Params = Params  # type: ignore[attr-defined]
        copies[f"tinyxp.{name}"] = module
    return Modules(**{name: copies[f"tinyxp.{name}"] for name in Modules._fields})


def _importer(copies: Mapping[str, ModuleType]) -> Any:
    """``__import__`` for copies: they import each other, and tinyxp's own modules otherwise."""

    def copy_or_own(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if fromlist and name in copies:
            return copies[name]
        own = builtins.__import__(name, globals, locals, fromlist, level)
        if name != "tinyxp":
            return own
        return SimpleNamespace(**{x: copies.get(f"tinyxp.{x}") or getattr(own, x) for x in fromlist})

    return copy_or_own


def subject(name: str, backend: str = "numpy") -> Decoder:
    """The mutant of that name on a backend, to be judged. Raises ValueError naming an unknown one."""
    if name not in MUTANTS:
        raise ValueError(f"mutant is {name!r}; known are {', '.join(MUTANTS)}")
    return copied(MUTANTS[name], backend)


def copied(mutant: Mutant | None, backend: str = "numpy") -> Decoder:
    """A mutant, or the copy without a change, on a backend."""
    recipe = "mutants.copied(None" if mutant is None else f"mutants.subject({mutant.name!r}"
    return subjects.decoder(
        registry.backend(backend),
        name="copy" if mutant is None else mutant.name,
        recipe=f"{recipe}, {backend!r})",
        modules=load(mutant),
    )
