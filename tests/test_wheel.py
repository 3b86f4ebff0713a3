"""The wheel that users install: everything in its place, nothing beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that the tree stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in ("tinyxp", "backends"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", source / "dist", source], check=True, timeout=300, capture_output=True)
    (found,) = (source / "dist").iterdir()
    return zipfile.ZipFile(found)


def test_every_module_is_in_the_wheel_and_nothing_is_at_its_top_level(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if not name.startswith("tinyxp-")}
    library = {f"tinyxp/{path.relative_to(ROOT / 'tinyxp')}" for path in (ROOT / "tinyxp").rglob("*.py")}
    adapters = {f"tinyxp/backends/{path.name}" for path in (ROOT / "backends").glob("*.py")}
    models = {f"tinyxp/{path.relative_to(ROOT / 'tinyxp')}" for path in (ROOT / "tinyxp/models").glob("*/*")}
    assets = {f"tinyxp/html/assets/{path.name}" for path in (ROOT / "tinyxp/html/assets").iterdir()}
    assert inside == library | adapters | models | assets | {"tinyxp/py.typed"}
    assert "tinyxp/models/holmes/model.safetensors" in models
    assert {f"tinyxp/html/assets/page.{kind}" for kind in ("css", "js")} <= assets


def test_the_models_take_at_most_4_mb(wheel: zipfile.ZipFile) -> None:
    assert sum(x.compress_size for x in wheel.infolist() if "/models/" in x.filename) <= 4_000_000


def test_the_wheel_names_its_backends_and_its_command(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    text = wheel.read(name).decode()
    assert "tinyxp = tinyxp.cli:main" in text
    for backend in (
        "numpy",
        "torch",
        "jax",
        "array_api_strict",
        "strict",
        "mlx",
        "dask",
        "ndonnx",
        "mparray",
    ):
        assert f"\n{backend} = tinyxp.backends." in text


def test_the_wheel_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
