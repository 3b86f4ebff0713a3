"""Backends by entry points; what importing tinyxp imports, and what it must not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import available_backends

SOURCE = Path(tinyxp.__file__).parent
FRAMEWORKS = {
    "torch",
    "jax",
    "jaxlib",
    "array_api_strict",
    "mlx",
    "dask",
    "ndonnx",
    "mparray",
    "transformers",
}


def run(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_tinyxp_imports_no_library() -> None:
    heavy = sorted(
        FRAMEWORKS | {"array_api_compat", "array_api_extra", "importlib.metadata", "safetensors", "gguf"}
    )
    assert run(f"import sys, tinyxp; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_computing_on_numpy_imports_no_other_library() -> None:
    code = (
        "import sys, tinyxp; params = tinyxp.init(tinyxp.Config()); tinyxp.generate(params, [[1]], 2);"
        f"print([name for name in {sorted(FRAMEWORKS)} if name in sys.modules])"
    )
    assert run(code) == "[]"


def test_jit_for_someone_who_never_named_a_backend() -> None:
    pytest.importorskip("jax")
    code = (
        "import jax, numpy, tinyxp;"
        "params = tinyxp.init(tinyxp.Config());"
        "print(type(jax.jit(tinyxp.forward)(params, numpy.array([[1, 2]]))).__module__.split('.')[0])"
    )
    assert run(code) in ("jaxlib", "jax")


def test_a_framework_that_is_imported_after_tinyxp() -> None:
    pytest.importorskip("torch")
    code = (
        "import tinyxp; params = tinyxp.init(tinyxp.Config());"
        "import torch; arrays = {k: torch.tensor(v) for k, v in params.items()};"
        "print(tinyxp.Params(arrays, params.config).xp.__name__)"
    )
    assert "torch" in run(code)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_library_imports_no_framework(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    assert not {name for name in found if name.split(".")[0] in FRAMEWORKS}
    assert not {name for name in found if name.startswith("tinyxp.backends.")}


def test_public_names() -> None:
    for name in tinyxp.__all__:
        assert getattr(tinyxp, name) is getattr(tinyxp, name)
    assert set(tinyxp.__all__) <= set(dir(tinyxp))
    with pytest.raises(AttributeError, match="'tinyxp' has no attribute 'fit'"):
        tinyxp.fit  # noqa: B018
    # A module is never named like a public function.
    modules = {path.stem for path in SOURCE.iterdir()} - {"__init__"}
    assert not modules & set(tinyxp.__all__)


def test_available_backends() -> None:
    found = available_backends()
    assert {"numpy", "torch", "jax", "strict", "array_api_strict", "mlx", "dask", "ndonnx", "mparray"} <= set(
        found
    )
    assert found["numpy"] == np.__version__
    assert found["strict"] == found["array_api_strict"]


def test_asking_what_is_available_imports_nothing() -> None:
    code = (
        "import sys, tinyxp; tinyxp.available_backends();"
        f"print([name for name in {sorted(FRAMEWORKS)} if name in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize(
    "name, modules",
    [
        ("numpy", ["numpy", "array_api_compat.numpy"]),
        ("torch", ["torch", "array_api_compat.torch"]),
        ("jax", ["jax", "jax.numpy"]),
        ("strict", ["array_api_strict"]),
    ],
)
def test_a_backend_by_its_name_and_its_namespace(name: str, modules: list[str]) -> None:
    backend = tinyxp.backend(name)
    assert tinyxp.backend(backend.xp) is backend
    for module in map(pytest.importorskip, modules):
        assert tinyxp.backend(module) is backend


def test_strict_is_an_alias() -> None:
    assert tinyxp.backend("strict") is tinyxp.backend("array_api_strict")
    assert tinyxp.backend("strict").name == "array_api_strict"


@pytest.mark.parametrize("name", ["cupy", "", "Torch"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^backend is '{name}'; known are .*numpy"):
        tinyxp.backend(name)


@pytest.mark.parametrize("wrong", [3, None, np.zeros(3), [np]], ids=["int", "None", "array", "list"])
def test_what_is_neither_name_nor_namespace(wrong: Any) -> None:
    with pytest.raises(ValueError, match="xp is"):
        tinyxp.backend(wrong)


def test_a_module_of_no_known_library() -> None:
    with pytest.raises(ValueError, match=r"'ast'"):
        tinyxp.backend(ast)


def test_an_array_of_no_known_library() -> None:
    class Foreign:
        shape, dtype = (1, 2), "int64"

    with pytest.raises(ValueError, match="Foreign"):
        tinyxp.forward(tinyxp.init(tinyxp.Config()), Foreign())


PLUGIN = """
import numpy as np
from types import ModuleType
from tinyxp.registry import Backend

class Array:
    pass

class Acme(Backend):
    def is_array(self, x):
        return False
    def from_numpy(self, x, *, dtype=None, device=None):
        return ("acme", x.dtype.name, dtype)

backend = Acme("acme_arrays", ModuleType("acme_arrays"))
"""


def test_a_third_party_s_backend_is_the_equal_of_ours(tmp_path: Path) -> None:
    (tmp_path / "acme_arrays.py").write_text(PLUGIN)
    info = tmp_path / "acme_arrays-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-arrays\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[tinyxp.backends]\nacme_arrays = acme_arrays:backend\n")
    code = (
        "import tinyxp; print(tinyxp.available_backends()['acme_arrays']);"
        "print(tinyxp.backend('acme_arrays').name);"
        "import acme_arrays; print(tinyxp.backend(acme_arrays) is acme_arrays.backend)"
    )
    assert run(code, PYTHONPATH=str(tmp_path)).split() == ["1.5", "acme_arrays", "True"]


def test_a_known_backend_whose_library_is_missing(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("import acme_is_not_here\n")
    info = tmp_path / "none-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: none\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tinyxp.backends]\nacme_is_not_here = none:backend\n")
    code = (
        "import tinyxp\n"
        "print(tinyxp.available_backends()['acme_is_not_here'])\n"
        "try: tinyxp.backend('acme_is_not_here')\n"
        "except ImportError as error: print(error)\n"
    )
    printed = run(code, PYTHONPATH=str(tmp_path))
    assert printed.startswith("None\n")
    assert "'acme_is_not_here'" in printed
    assert "pip install" in printed


def test_no_gradients_says_what_to_install(backend: tinyxp.Backend) -> None:
    if backend.name in ("torch", "jax"):
        assert callable(backend.value_and_grad(tinyxp.loss))
    else:
        with pytest.raises(ValueError, match=rf"'{backend.name}'.*no gradients.*install"):
            backend.value_and_grad(tinyxp.loss)


def test_dtypes_by_name_and_by_object(backend: tinyxp.Backend) -> None:
    torch = pytest.importorskip("torch")
    for same in ("float32", np.float32, np.dtype("float32"), torch.float32, backend.xp.float32):
        assert backend.dtype(same) == backend.xp.float32


def test_a_backend_is_no_module(backend: tinyxp.Backend) -> None:
    assert isinstance(backend.xp, types.ModuleType)
    assert not isinstance(backend, types.ModuleType)
    assert backend.name in repr(backend)
