"""Backends by entry points; what importing tinyxp imports, and what it must not."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tinyxp import available_backends
from tinyxp.dtypes import dtype_name

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
    backends = {name for name in found if name.startswith("tinyxp.backends.")}
    compared = {"tinyxp.backends.transformers", "tinyxp.backends.transformers_trace"}  # these are no backends
    assert backends <= compared


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
    imported = [pytest.importorskip(module) for module in modules]
    backend = tinyxp.backend(name)
    assert tinyxp.backend(backend.xp) is backend
    for module in imported:
        assert tinyxp.backend(module) is backend


def test_strict_is_an_alias() -> None:
    pytest.importorskip("array_api_strict")
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


def install(site: Path, adapters: dict[str, str], version: str = "1.5") -> None:
    """Adapters, library name -> source, as pip would leave the distribution that names them."""
    info = site / f"acme-{version}.dist-info"
    info.mkdir()
    for name, source in adapters.items():
        (site / f"{name}_adapter.py").write_text(source)
    entries = "".join(f"{name} = {name}_adapter:backend\n" for name in adapters)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme\nVersion: {version}\n")
    (info / "top_level.txt").write_text("".join(f"{name}\n" for name in adapters))
    (info / "RECORD").write_text("".join(f"{name}.py,,\n" for name in adapters))
    (info / "entry_points.txt").write_text(f"[tinyxp.backends]\n{entries}")


def test_a_third_party_s_backend_is_the_equal_of_ours(tmp_path: Path) -> None:
    """A library with arrays of its own, and an adapter of one line that inherits every method."""
    strict = pytest.importorskip("array_api_strict")
    shutil.copytree(Path(strict.__file__).parent, tmp_path / "acme_arrays")
    for path in (tmp_path / "acme_arrays").rglob("*.py"):
        path.write_text(path.read_text(encoding="utf-8").replace("array_api_strict", "acme_arrays"))
    adapter = "import acme_arrays, tinyxp\nbackend = tinyxp.Backend('acme_arrays', acme_arrays)\n"
    install(tmp_path, {"acme_arrays": adapter})
    code = """
import acme_arrays, json, tinyxp
params = tinyxp.init(tinyxp.Config())
backend = tinyxp.backend("acme_arrays")
assert tinyxp.backend(acme_arrays) is backend
assert type(backend) is tinyxp.Backend
there = params.to(acme_arrays)
assert there.xp is acme_arrays
wide = params.to(acme_arrays, dtype="float64")
logits = tinyxp.forward(there, [[3, 1, 4]], mask=[[False, True, True]])
for x in (*there.values(), logits, tinyxp.loss(there, [[1]], [[2]]), tinyxp.generate(there, [[1]], 2)):
    assert backend.is_array(x)
    assert type(x).__module__.startswith("acme_arrays")
    assert not any(tinyxp.backend(name).is_array(x) for name in ("numpy", "strict"))
print(json.dumps({
    "version": tinyxp.available_backends()["acme_arrays"],
    "logits": backend.to_numpy(logits).tolist(),
    "float64": backend.to_numpy(tinyxp.forward(wide, acme_arrays.asarray([[3, 1, 4]]))).tolist(),
    "loss": float(backend.to_numpy(tinyxp.loss(there, [[3, 1]], acme_arrays.asarray([[1, -100]])))),
    "ids": backend.to_numpy(tinyxp.generate(wide, [[3, 1, 4]], 5)).tolist(),
    "sampled": backend.to_numpy(tinyxp.generate(wide, [[3, 1]], 5, temperature=1.0, seed=3)).tolist(),
}))
"""
    printed = json.loads(run(code, PYTHONPATH=str(tmp_path)))
    params = tinyxp.init(tinyxp.Config())
    wide = params.to(dtype="float64")
    assert printed["version"] == "1.5"
    logits = tinyxp.forward(params, [[3, 1, 4]], mask=[[False, True, True]])
    # Its arrays are computed by NumPy too, in the same order, so that float64 leaves next to nothing.
    np.testing.assert_allclose(printed["logits"], logits, rtol=0.0, atol=1e-7)
    np.testing.assert_allclose(printed["float64"], tinyxp.forward(wide, [[3, 1, 4]]), rtol=0.0, atol=1e-15)
    assert printed["loss"] == pytest.approx(float(tinyxp.loss(params, [[3, 1]], [[1, -100]])), rel=1e-6)
    assert printed["ids"] == tinyxp.generate(wide, [[3, 1, 4]], 5).tolist()
    sampled = tinyxp.generate(wide, [[3, 1]], 5, temperature=1.0, seed=3)
    assert printed["sampled"] == sampled.tolist()


def test_a_broken_adapter_breaks_nothing_else_and_says_why_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "acme_broken.py").write_text("")
    install(tmp_path, {"acme_broken": "raise RuntimeError('this adapter is broken')\n"})
    code = """
import acme_broken, tinyxp
print(tinyxp.forward(tinyxp.init(tinyxp.Config()), [[1, 2]]).shape)
try:
    tinyxp.backend("acme_broken")
except ImportError as error:
    print(error)
"""
    assert run(code, PYTHONPATH=str(tmp_path)) == (
        "(1, 2, 128)\nbackend 'acme_broken' cannot be loaded: RuntimeError: this adapter is broken"
    )


def test_a_known_backend_whose_library_is_missing(tmp_path: Path) -> None:
    install(tmp_path, {"acme_is_not_here": "import acme_is_not_here\n"})
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


def test_no_gradients_says_what_to_use(backend: tinyxp.Backend) -> None:
    assert backend.has_gradients == (backend.name in ("torch", "jax"))
    if backend.has_gradients:
        assert callable(backend.value_and_grad(tinyxp.loss))
    else:
        with pytest.raises(ValueError, match=rf"'{backend.name}'.*no gradients; (use|install)"):
            backend.value_and_grad(tinyxp.loss)


def test_the_advice_about_gradients_imports_nothing() -> None:
    code = (
        "import sys, tinyxp\n"
        "try: tinyxp.backend('numpy').value_and_grad(tinyxp.loss)\n"
        "except ValueError as error: print(error, 'torch' in sys.modules, 'jax' in sys.modules)\n"
    )
    assert run(code).endswith("install one of docs/backends.md False False")


def test_a_subclass_declares_what_it_can_do() -> None:
    with pytest.raises(TypeError, match=r"^Compiling has jit, so its compiles must be True$"):

        class Compiling(tinyxp.Backend):
            def jit(self, f: Any) -> Any:
                return f

    class Able(tinyxp.Backend):
        has_gradients = True

        def value_and_grad(self, f: Any) -> Any:
            return f

    assert Able("able", np).value_and_grad(len) is len


def test_an_adapter_that_failed_is_tried_again_and_its_reason_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "acme_late.py").write_text("")
    install(tmp_path, {"acme_late": "import acme_late\nacme_late.ready\n"})
    code = """
import acme_late, tinyxp
params = tinyxp.init(tinyxp.Config())
class Array:
    shape, dtype = (1, 1), "int64"
for ready in (False, True):
    if ready:
        acme_late.ready = True
    try:
        tinyxp.forward(params, Array())
    except ValueError as error:
        print("has no attribute 'ready'" in str(error))
"""
    assert run(code, PYTHONPATH=str(tmp_path)) == "True\nFalse"


def test_dtypes_by_name_and_by_object(backend: tinyxp.Backend) -> None:
    for same in ("float32", np.float32, np.dtype("float32"), backend.xp.float32):
        assert backend.dtype(same) == backend.xp.float32


def test_dtypes_of_another_library(backend: tinyxp.Backend) -> None:
    torch = pytest.importorskip("torch")
    assert backend.dtype(torch.float32) == backend.xp.float32


def test_a_backend_is_no_module(backend: tinyxp.Backend) -> None:
    assert isinstance(backend.xp, types.ModuleType)
    assert not isinstance(backend, types.ModuleType)
    assert backend.name in repr(backend)


@pytest.mark.parametrize("wrong", [[], {}, ["float32"], None, "int64", 32], ids=repr)
def test_what_is_no_dtype(backend: tinyxp.Backend, wrong: Any) -> None:
    with pytest.raises(ValueError, match="dtype is .*; known are float64, float32"):
        backend.dtype(wrong)


def test_dtypes_need_not_be_hashable_nor_comparable_with_another_library_s() -> None:
    """The standard wants no more of them than ``==`` among themselves."""

    class Dtype:
        __hash__ = None  # type: ignore[assignment]

        def __str__(self) -> str:
            return "acme.float32"

    class Touchy(str):
        def __eq__(self, other: object) -> bool:
            if type(other) is not Touchy:
                raise TypeError(f"compared with {other!r}")
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    assert dtype_name(Dtype()) == "float32"
    assert dtype_name("acme.float32") == dtype_name(Touchy("acme.float32"))
