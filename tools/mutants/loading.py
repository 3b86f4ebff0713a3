"""Fresh copies of tinyxp's core with a change of its source.

A monkeypatch would not do: compiled functions would keep the code they were traced with.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import itertools
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType

from tinyxp import registry
from tinyxp.testing.subjects.backends import build_decoder
from tinyxp.testing.subjects.decoder import Decoder, Modules

from .mutant_registry import MUTANTS, Mutant, Patch

COPIED = (
    "ops",
    "rope",
    "shapes",
    "joint",
    "initialization",
    "inputs",
    "cache",
    "model",
    "tracing",
    "sampling",
    "decoding",
    "engine",
    "generation",
)
"""The modules that are copied. The rest is shared with tinyxp, such as Params: a pytree of JAX and torch."""

OWN_DECODER = (
    Patch(
        "engine",
        "engine.decoder(params, batch, length, kernels=as_kernels(engine.kernels))",
        "own_decoder(params, batch, length)",
    ),
    Patch(
        "engine",
        "def new_decoder(",
        """def own_decoder(params: Params, batch: int, length: int) -> Decoder:
    if not params.backend.has_views:
        return Decoder(params, batch, length, kernels=as_kernels(None))
    from tinyxp.decoding import InPlaceDecoder
    kernels = {"project": project, "write_cache": params.backend.engine.kernels["write_cache"]}
    return InPlaceDecoder(params, batch, length, kernels=as_kernels(kernels))


def new_decoder(""",
    ),
)
"""Every copy generates with its own decoder and operations, because a backend's are not the source that is
judged. Only the kernel that writes in place stays, which the decoder needs if slices are views."""

_numbers = itertools.count()


def sources(patches: Sequence[Patch] = ()) -> dict[str, str]:
    """Return the changed source of every copied module. Raise ValueError if a patch does not fit."""
    texts = {name: _source(name) for name in COPIED}
    for patch in (*patches, *OWN_DECODER):
        if patch.module not in texts:
            raise ValueError(f"patch is of {patch.module!r}; only {', '.join(COPIED)} are copied")
        texts[patch.module] = patch.apply(texts[patch.module])
    return texts


@cache
def _source(name: str) -> str:
    spec = find_spec(f"tinyxp.{name}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


class CopiedImports(ast.NodeTransformer):
    """Makes imports of copied modules relative, to the copy's package, and all others absolute.

    So both styles work in the source: ``from tinyxp.ops import x`` and ``from .ops import x``.
    """

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        module = ".".join([*(["tinyxp"] if node.level else []), *([node.module] if node.module else [])])
        name = module.removeprefix("tinyxp.")
        if module == "tinyxp":
            copied = [alias for alias in node.names if alias.name in COPIED]
        else:
            copied = node.names if module.startswith("tinyxp.") and name in COPIED else []
        shared = [alias for alias in node.names if alias not in copied]
        relative = ast.ImportFrom(None if module == "tinyxp" else name, copied, level=1)
        absolute = ast.ImportFrom(module, shared, level=0)
        return [ast.copy_location(statement, node) for statement in (relative, absolute) if statement.names]


class CopyFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and executes the modules of copies, each a package of its own."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, CodeType]] = {}  # package -> module -> code

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if name in self.codes.get(package, ()) else None

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.rpartition(".")
        exec(self.codes[package][name], vars(module))


_finder = CopyFinder()
sys.meta_path.append(_finder)


@cache
def _code(source: str, label: str) -> CodeType:
    tree = CopiedImports().visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), label, "exec", dont_inherit=True)


def load(mutant: Mutant | None = None) -> Modules:
    """Return a fresh copy of the core with a mutant's change, or with none.

    The copies are in ``sys.modules`` under a package name of their own, where dataclasses and compilers look
    them up.
    """
    package = f"{__package__}.copy{next(_numbers)}"
    changed = {patch.module for patch in mutant.patches} if mutant else set()
    _finder.codes[package] = {
        name: _code(source, f"<{mutant.name if mutant and name in changed else 'copy'}: tinyxp/{name}.py>")
        for name, source in sources(mutant.patches if mutant else ()).items()
    }
    parent = ModuleType(package)
    parent.__path__ = []
    sys.modules[package] = parent
    return Modules(**{name: importlib.import_module(f"{package}.{name}") for name in Modules._fields})


def load_subject(name: str | None, backend: str = "numpy") -> Decoder:
    """Return the mutant of that name, or the unchanged copy for None, on a backend, ready to be judged.

    Raise ValueError naming an unknown mutant.
    """
    if name is not None and name not in MUTANTS:
        raise ValueError(f"mutant is {name!r}; known are {', '.join(MUTANTS)}")
    return build_decoder(
        registry.backend(backend),
        name=name or "copy",
        recipe=f"load_subject({name!r}, {backend!r})",
        recipe_module="tools.mutants",
        modules=load(None if name is None else MUTANTS[name]),
    )
