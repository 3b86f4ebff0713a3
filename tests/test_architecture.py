"""docs/architecture.md: the paths that it names exist, and nothing of the package's top level is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import LAYERS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.(?:toml|md))`", PAGE)))
DIAGRAM = PAGE.partition("```text")[2].partition("```")[0]
MODULES = {
    path.name + "/" * path.is_dir()
    for path in (ROOT / "tinyxp").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").is_file()
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def test_many_paths_are_named() -> None:
    assert len(PATHS) > 30


def test_the_diagram_has_every_module_of_the_top_level_once() -> None:
    modules = [word for word in DIAGRAM.split() if re.fullmatch(r"\w+(/|\.py)", word)]
    assert len(modules) == len(set(modules))
    assert set(modules) == MODULES - {"__main__.py"}


def test_the_diagram_shows_the_layers_that_are_tested() -> None:
    layers: dict[int, set[str]] = {}
    number = 0
    for line in DIAGRAM.strip().splitlines():
        number = int(line[:2].strip() or number)
        names = re.findall(r"\b(\w+)(?:/|\.py)", line)
        layers.setdefault(number, set()).update("" if name == "__init__" else name for name in names)
    tested = {i: set(names) - {"__main__"} for i, names in enumerate(LAYERS, start=1)}
    assert layers == tested


def test_the_glossary_is_sorted_and_has_each_term_once() -> None:
    rows = PAGE.partition("## Glossary")[2].partition("## ")[0]
    terms = re.findall(r"^\| ([^|`]+?) \|", rows, re.MULTILINE)[1:]
    assert len(terms) > 30
    assert terms == sorted(set(terms))
