"""How sides are written, and what is said of those that are not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tinyxp
from tests.reference import drawn, libraries
from tinyxp.doctor import parse, write_trace
from tinyxp.doctor.function_side import FunctionSide
from tinyxp.doctor.sides import ModelSide, PluginSide, RecordedSide

from .models import IDS, LLAMA_SMALL, llama, traced

PORT = """
import numpy as np
def forward(ids):
    return np.zeros((*ids.shape, 61), np.float32)
def two(ids, other):
    return forward(ids)
def none():
    return 0
def nothing(ids):
    return {}
def text(ids):
    return "logits"
def wrong(ids):
    return {"logit": forward(ids)}
def fails(ids):
    raise RuntimeError("there is no such tensor")
class Net:
    def __call__(self, ids):
        return forward(ids)
net = Net()
number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model, traces and a port, from which commands are given."""
    before = set(sys.modules)
    tinyxp.save(drawn(LLAMA_SMALL), tmp_path / "model")
    write_trace(tmp_path / "port.npz", traced(llama(), IDS), ids=IDS)
    write_trace(tmp_path / "port.safetensors", traced(llama(), IDS), ids=IDS)
    (tmp_path / "my_port_of_it.py").write_text(PORT)
    (tmp_path / "package_of_it").mkdir()
    (tmp_path / "package_of_it" / "inner.py").write_text(PORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("_of_it") or name.startswith("package_of_it"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("where", "backend", "dtype", "kernels", "jit"),
    [
        ("", "numpy", None, False, False),
        ("@numpy", "numpy", None, False, False),
        ("@numpy:float64", "numpy", "float64", False, False),
        ("@:float16", "numpy", "float16", False, False),
        ("@numpy+kernels", "numpy", None, True, False),
        ("@+kernels", "numpy", None, True, False),
        ("@strict", "array_api_strict", None, False, False),
        pytest.param("@torch:bfloat16", "torch", "bfloat16", False, False, marks=libraries("torch")[0].marks),
        pytest.param("@jax+jit", "jax", None, False, True, marks=libraries("jax")[0].marks),
        pytest.param(
            "@jax+jit+kernels:float32", "jax", "float32", True, True, marks=libraries("jax")[0].marks
        ),
    ],
)
@pytest.mark.parametrize("what", ["model", "holmes"])
def test_a_model_and_where_it_runs(
    what: str, where: str, backend: str, dtype: str | None, kernels: bool, jit: bool, here: Path
) -> None:
    side = parse(what + where)
    assert isinstance(side, ModelSide)
    assert (side.name, side.path, side.model) == (what + where, what, what)
    assert (side.dtype, side.kernels, side.jit) == (dtype, kernels, jit)
    assert side.backend.name in (backend, "strict")


def test_transformers_own(here: Path) -> None:
    for text, dtype in (("hf:model", None), ("hf:model@:bfloat16", "bfloat16"), ("hf:model@torch", None)):
        side = parse(text)
        assert isinstance(side, PluginSide)
        assert (side.name, side.path, side.dtype) == (text, "model", dtype)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_recorded_trace(suffix: str, here: Path) -> None:
    side = parse(f"port.{suffix}")
    assert isinstance(side, RecordedSide)
    assert side.trace(side.batch).dtype == "float32"
    assert np.array_equal(side.batch.ids, IDS)
    assert parse(f"port.{suffix}@:bfloat16").trace(side.batch).dtype == "bfloat16"


@pytest.mark.parametrize(
    "text",
    [
        *("my_port_of_it:forward", "my_port_of_it:net", "package_of_it.inner:forward"),
        *("my_port_of_it.py:forward", "./my_port_of_it.py:net", "package_of_it/inner.py:Net.__call__"),
    ],
)
def test_a_function(text: str, here: Path) -> None:
    side = parse(text + "@:float16")
    assert isinstance(side, FunctionSide)
    assert callable(side.function)
    assert side.dtype == "float16"
    assert parse(text).dtype is None
    if "Net." not in text:
        assert side.function(IDS).shape == (2, 12, 61)


def test_a_function_in_a_file_whose_path_has_blanks_and_dots(here: Path) -> None:
    folder = here / "my ports v1.2"
    folder.mkdir()
    (folder / "side_of_it.py").write_text("import beside_of_it\n" + PORT)
    (folder / "beside_of_it.py").write_text("")
    assert isinstance(parse(f"{folder}/side_of_it.py:forward"), FunctionSide)


def test_two_files_of_one_name_are_two_modules(here: Path) -> None:
    for folder in ("one", "two"):
        (here / folder).mkdir()
        (here / folder / "same_of_it.py").write_text(f"def f(ids):\n    return {folder!r}\n")
    assert [parse(f"{folder}/same_of_it.py:f").function(IDS) for folder in ("one", "two")] == ["one", "two"]  # type: ignore[attr-defined]


def test_an_at_sign_in_a_path_that_exists(here: Path) -> None:
    (here / "model").rename("model@v1:float32")
    side = parse("model@v1:float32")
    assert isinstance(side, ModelSide)
    assert (side.path, side.dtype) == ("model@v1:float32", None)
    side = parse("model@v1:float32@:float64")
    assert isinstance(side, ModelSide)
    assert (side.path, side.dtype) == ("model@v1:float32", "float64")
    hf = parse("hf:model@v1:float32")
    assert isinstance(hf, PluginSide)
    assert hf.path == "model@v1:float32"
    (here / "port.npz").rename("port@2.npz")
    assert isinstance(parse("port@2.npz"), RecordedSide)
    (here / "my_port_of_it.py").rename("my@port_of_it.py")
    assert isinstance(parse("my@port_of_it.py:forward"), FunctionSide)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a side is empty"),
        ("model@", "model@: after @ is ''"),
        ("@numpy", "@numpy: after @ is 'numpy'; it must be"),
        ("model@numpy:float33", "dtype is 'float33'; known are float64"),
        ("model@numpy:", "after @ is 'numpy:'"),
        ("model@numpy+", r"after @ is 'numpy\+'"),
        ("model@numpy+fast", r"model@numpy\+fast: after '\+' is 'fast'; it must be kernels or jit"),
        ("model@numpy+jit", "numpy does not compile"),
        ("model@strict+kernels", "brings no kernels"),
        ("model@tensorflow", "tensorflow"),
        ("model@numpy:bfloat16", "bfloat16"),
        ("port.npz@torch", "a recorded trace has no backend"),
        ("port.npz@+kernels", "a recorded trace has no backend"),
        ("hf:model@jax", "hf: chooses its own backend"),
        ("hf:model@torch+kernels", "hf: chooses its own backend"),
        ("my_port_of_it:forward@numpy", "a function has no backend"),
        ("no_module_of_it:forward", "there is no module 'no_module_of_it', nor such a file"),
        ("package_of_it.outer:forward", "there is no module 'package_of_it.outer'"),
        ("my_port_of_it:backward", "my_port_of_it has no 'backward'"),
        ("my_port_of_it:Net.backward", "my_port_of_it has no"),
        ("my_port_of_it:number", "is a int; it must be a function of ids"),
        ("no_such_file.py:forward", "there is no file no_such_file.py"),
        ("model/model.safetensors", "has no entry 'ids', so it is no trace; a model is named by its folder"),
        ("nothing.npz", "nothing.npz"),
        ("nowhere", "nowhere"),
        ("hf:nowhere", "nowhere"),
        ("hf:", "hf:"),
        ("broken.npz", "broken.npz"),
        ("empty.safetensors", "empty.safetensors"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_in_a_line(text: str, said: str, here: Path) -> None:
    (here / "broken.npz").write_bytes(b"PK\x03\x04")
    (here / "empty.safetensors").write_bytes(b"")
    with pytest.raises((ValueError, OSError), match=said) as error:
        tinyxp.doctor.compare("model", text, IDS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("two", r"two takes \(ids, other\); it is called with ids alone"),
        ("none", r"none takes \(\); it is called with ids alone"),
        ("nothing", "gave no trace point"),
        ("text", "logits"),
        ("wrong", "trace point is 'logit'; known are"),
    ],
)
def test_what_a_function_must_do_is_said_in_a_line(function: str, said: str, here: Path) -> None:
    with pytest.raises(ValueError, match=said) as error:
        tinyxp.doctor.compare("model", f"my_port_of_it.py:{function}", IDS)
    assert "\n" not in str(error.value)


def test_an_error_of_the_port_itself_is_one_line_and_keeps_its_cause(here: Path) -> None:
    said = r"my_port_of_it.py:fails raised RuntimeError: .*there is no such tensor.* \(my_port_of_it.py:\d+\)"
    with pytest.raises(ValueError, match=said) as caught:
        tinyxp.doctor.compare("model", "my_port_of_it.py:fails", IDS)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_import_that_a_port_lacks_is_named(here: Path) -> None:
    (here / "lacking_of_it.py").write_text("import no_library_of_it\n")
    for text in ("lacking_of_it:f", "lacking_of_it.py:f"):
        with pytest.raises(ModuleNotFoundError, match="no_library_of_it"):
            parse(text)
