"""The layers of the package: what each module may import, and that nothing imports in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyxp

ROOT = Path(tinyxp.__file__).parent
LAYERS = (
    ("errors", "typing", "dtypes", "checks", "files"),
    ("config", "ops", "plugins", "registry"),
    ("shapes", "joint", "params", "initialization", "adoption"),
    ("inputs", "cache", "rope", "model", "tracing"),
    ("sampling", "decoding", "engine", "generation"),
    ("formats",),
    ("text",),
    ("train", "bench", "doctor", "testing"),
    ("html",),
    ("cli", "pytest_plugin", "__main__", ""),
)
"""From low to high: the modules and packages of each layer; "" is the package itself, with its lazy names."""
APART = LAYERS[7]
"""Packages that do not import each other."""
UPWARD = {("tinyxp.config", "tinyxp.formats.hf_config")}
"""Imports from a lower layer to a higher one: those of ``Config.from_hf`` and ``Config.to_hf`` alone."""
FRAMEWORKS = {
    "torch",
    "jax",
    "jaxlib",
    "transformers",
    "mlx",
    "dask",
    "ndonnx",
    "mparray",
    "array_api_strict",
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    names = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["tinyxp", *path.relative_to(ROOT).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def imported(module: str) -> Iterator[str]:
    """The names that a module imports anywhere in its source, for type checking and in functions too."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base


def edges() -> set[tuple[str, str]]:
    """Which module imports which, within the package."""
    return {(a, b) for a in MODULES for b in imported(a) if b in MODULES and a != b}


def layer(module: str) -> int:
    top = module.split(".")[1] if "." in module else ""
    return next(number for number, names in enumerate(LAYERS) if top in names)


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_module_has_a_layer() -> None:
    known = {name for names in LAYERS for name in names}
    assert {package(module) for module in MODULES} == known | {"backends"} & {package(m) for m in MODULES}


def test_no_module_imports_from_a_higher_layer() -> None:
    upward = {(a, b) for a, b in edges() if layer(b) > layer(a)}
    assert upward == UPWARD


def test_packages_of_one_layer_do_not_import_each_other() -> None:
    assert not {
        (a, b) for a, b in edges() if package(a) in APART and package(b) in APART and package(a) != package(b)
    }


def test_no_imports_in_a_circle() -> None:
    graph = {module: set() for module in MODULES}
    for a, b in edges() - UPWARD:
        graph[a].add(b)
    while graph:
        leaves = {module for module, needs in graph.items() if not needs}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {module: needs - leaves for module, needs in graph.items() if module not in leaves}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_a_framework(module: str) -> None:
    assert not {name.partition(".")[0] for name in imported(module)} & FRAMEWORKS
    assert not {name for name in imported(module) if name.startswith("tinyxp.backends")}


@pytest.mark.parametrize("module", [module for module in MODULES if package(module) != "cli"])
def test_no_module_is_named_like_something_in_it_or_beside_it(module: str) -> None:
    """``from package import module`` would give the function; commands are named as they are called."""
    parent, _, name = module.rpartition(".")
    if not parent or name.startswith("__"):
        return
    init = ast.parse(MODULES[parent].read_text(encoding="utf-8"))
    beside = {
        alias.asname or alias.name
        for node in ast.walk(init)
        if isinstance(node, ast.ImportFrom) and node.module != parent
        for alias in node.names
    }
    inside = {
        node.name
        for node in ast.parse(MODULES[module].read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    laws = parent == "tinyxp.testing.laws"  # nobody imports a law from its module
    assert name not in (beside if laws else beside | inside)
