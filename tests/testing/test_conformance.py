"""The conformance tests, run as the author of an array library runs them: elsewhere, by the module's name."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tinyxp
from tests.reference import libraries
from tinyxp.adoption import adopt
from tinyxp.pytest_plugin import read_list
from tinyxp.testing import LAWS

LISTS = Path(__file__).parents[1] / "conformance"
OTHERS = ("mlx", "dask", "ndonnx", "mparray")
QUICK = ("causality", "prefix-invariance", "rows-are-independent")


def run(
    folder: Path, library: str, *arguments: str, laws: tuple[str, ...] = QUICK, **environment: str
) -> subprocess.CompletedProcess[str]:
    """pytest in ``folder`` on single laws."""
    tests = [f"tinyxp.testing.conformance::test_law[{law}]" for law in laws]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", *tests, "-p", "no:cacheprovider", "-rA", *arguments],
        cwd=folder,
        env=os.environ | {"TINYXP_TEST_MODULE": library} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("library", libraries(*OTHERS))
def test_a_library_keeps_what_its_list_leaves(library: str, tmp_path: Path) -> None:
    """Its simplest case of a few laws; ``make conformance`` judges by all of them."""
    laws = QUICK[:1] if library == "ndonnx" else QUICK  # each operation of which starts a runtime
    xfails = f"--xfails-file={LISTS / f'{library}-xfails.txt'}"
    done = run(tmp_path, library, "--max-examples=1", xfails, laws=laws)
    assert done.returncode == 0, done.stdout
    assert f"{len(laws)} passed" in done.stdout


@pytest.mark.parametrize("library", OTHERS)
def test_the_lists_name_laws_and_say_why(library: str) -> None:
    for kind in ("xfails", "skips"):
        for pattern, reason in read_list(LISTS / f"{library}-{kind}.txt"):
            assert pattern in LAWS
            assert reason


def test_a_namespace_without_an_adapter(tmp_path: Path) -> None:
    strict = pytest.importorskip("array_api_strict")
    shutil.copytree(Path(strict.__file__).parent, tmp_path / "acme_arrays")
    for path in (tmp_path / "acme_arrays").rglob("*.py"):
        path.write_text(path.read_text(encoding="utf-8").replace("array_api_strict", "acme_arrays"))
    done = run(tmp_path, "acme_arrays", "--max-examples=3", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.parametrize(
    "library, dtype, message",
    [
        ("", "", "TINYXP_TEST_MODULE is not set; it names what to test:"),
        ("nunpy", "", "TINYXP_TEST_MODULE is 'nunpy': backend is 'nunpy'; known are"),
        ("numpy", "bfloat16", "TINYXP_TEST_MODULE is 'numpy': dtype is 'bfloat16'; numpy has"),
    ],
)
def test_what_is_named_wrongly_is_no_module_of_tests(
    library: str, dtype: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYXP_TEST_MODULE", library)
    monkeypatch.setenv("TINYXP_TEST_DTYPE", dtype)
    with pytest.raises(pytest.Collector.CollectError, match=f"^{message}"):
        importlib.import_module("tinyxp.testing.conformance")


def test_adopting_what_is_known_or_is_no_namespace() -> None:
    assert adopt("numpy") is tinyxp.backend("numpy")
    known = "known are .*numpy"
    for name, message in {
        "no_such_module": rf"backend is 'no_such_module'; {known}.*, and any array namespace that can be",
        "json.no_such": rf"backend is 'json.no_such'; {known}",
        "json": "backend is 'json', a module whose arrays, if it has any, do not name it",
        "array": "backend is 'array', a module whose arrays",
        "numpy.linalg": "numpy.linalg, which is not the array namespace of numpy",
        "": f"^backend is ''; {known}",
        "../x": f"^backend is '../x'; {known}",
    }.items():
        with pytest.raises(ValueError, match=message):
            adopt(name)
