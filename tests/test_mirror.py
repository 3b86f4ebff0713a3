"""Every module has its tests, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PACKAGES = ("tinyxp", "backends", "tools")
WITHOUT = {"tinyxp/__main__.py", "tinyxp/typing.py", "tinyxp/errors.py"}
"""Modules without code of their own to test."""


def modules() -> list[Path]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(p.relative_to(ROOT) for p in paths if p.name not in ("__init__.py", "__main__.py"))


def files_for(module: Path) -> list[Path]:
    """The test files named after a module: test_NAME.py, or those of a folder NAME."""
    folder = TESTS.joinpath(*module.parts[1:-1]) if module.parts[0] == "tinyxp" else TESTS / module.parent
    beside = [*folder.glob(f"test_{module.stem}.py"), *folder.glob(f"{module.stem}/test_*.py")]
    return beside or [*folder.glob(f"*/test_{module.stem}.py")]


@pytest.mark.parametrize("module", modules(), ids=str)
def test_a_module_has_tests_of_its_name(module: Path) -> None:
    assert str(module) in WITHOUT or files_for(module)
