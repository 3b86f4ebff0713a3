"""Recorder in every library, compiled or not, and hooks on torch modules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.doctor.planted.planted import BASES, IDS, MASK
from tests.reference import drawn
from tinyxp import Params
from tinyxp.doctor import Recorder, compare, read_trace, record_torch
from tinyxp.doctor.points import points_of

LLAMA = BASES["llama"]


@pytest.fixture
def record() -> Recorder:
    return Recorder()


def test_a_whole_run_on_every_backend(backend: tinyxp.Backend, record: Recorder, tmp_path: Path) -> None:
    params = drawn(LLAMA).to(backend.xp)
    wanted = tinyxp.trace(params, IDS, mask=MASK)
    tinyxp.forward(params, IDS, mask=MASK, tap=record)
    assert list(record.points) == list(wanted)
    for name, x in record.points.items():
        assert isinstance(x, np.ndarray)
        assert np.array_equal(x, backend.to_numpy(wanted[name]))
    ids = backend.from_numpy(IDS.astype(backend.index_dtype))
    record.save(tmp_path / "port.npz", ids=ids, mask=backend.from_numpy(MASK))
    batch, found = read_trace(tmp_path / "port.npz")
    assert batch.ids.tolist() == IDS.tolist()
    assert batch.real.tolist() == MASK.tolist()
    assert all(np.array_equal(found[name], x) for name, x in record.points.items())


def test_it_returns_what_it_is_given(backend: tinyxp.Backend, record: Recorder) -> None:
    for i, dtype in enumerate(backend.dtypes()):
        x = backend.from_numpy(np.array([[[1.0, -2.5]]], np.float32), dtype=dtype)
        assert record(f"blocks.{i}.mlp.up", x) is x
        found = record.points[f"blocks.{i}.mlp.up"]
        assert found.dtype.name == dtype.replace("bfloat16", "float32")
        assert found.tolist() == [[[1.0, -2.5]]]


def test_values_are_copies(record: Recorder) -> None:
    torch = pytest.importorskip("torch")
    for name, x in (("embed", np.zeros((1, 2, 3))), ("logits", torch.zeros(1, 2, 3, requires_grad=True))):
        y = record(name, x * 1.0)
        y += 1.0
        assert record.points[name].tolist() == [[[0.0] * 3] * 2]


def test_what_numpy_takes_is_taken(record: Recorder) -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.ones((1, 2, 3), np.float32)

    x = Foreign()
    assert record("embed", x) is x
    record("logits", [[[0.5, 1.0]]])
    assert record.points["embed"].shape == (1, 2, 3)
    assert record.points["logits"].tolist() == [[[0.5, 1.0]]]


def test_numpys_bfloat16(record: Recorder) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    record("embed", np.array([[[1.0, -3.140625]]], ml_dtypes.bfloat16))
    assert record.points["embed"].dtype == np.float32
    assert record.points["embed"].tolist() == [[[1.0, -3.140625]]]


@pytest.mark.parametrize(
    "name, x, words",
    [
        (
            "blocks.0.attn.qs",
            np.ones((1, 2, 3)),
            "trace point is 'blocks.0.attn.qs'; known are embed, blocks",
        ),
        ("attn.q", np.ones((1, 2, 3)), "trace point is 'attn.q'; known are"),
        ("blocks.00.attn.q", np.ones((1, 2, 3)), "trace point is 'blocks.00.attn.q'; known are"),
        (0, np.ones((1, 2, 3)), "trace point is 0; it must be a string"),
        (
            "blocks.0.attn.q",
            np.ones(3),
            "blocks.0.attn.q has shape (3,); it must be (b, t, h*hd), b is optional",
        ),
        ("blocks.0.attn.q", np.ones((1, 2, 3, 4)), "has shape (1, 2, 3, 4); it must be (b, t, h*hd)"),
        ("blocks.0.attn.scores", np.ones((2, 3)), "has shape (2, 3); it must be (b, h, t, t)"),
        ("embed", np.ones((1, 2, 3), int), "trace point embed has dtype int64"),
        ("embed", None, "trace point embed has shape ()"),
    ],
)
def test_what_cannot_be_recorded(record: Recorder, name: Any, x: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        record(name, x)
    assert record.points == {}


def test_once_in_a_run(record: Recorder, tmp_path: Path) -> None:
    record("embed", np.zeros((1, 1, 3)))
    with pytest.raises(
        ValueError, match=r"embed was already recorded in this run; call record.clear\(\) before the next one"
    ):
        record("embed", np.ones((1, 1, 3)))
    assert record.points["embed"].tolist() == [[[0.0] * 3]]
    record.clear()
    with pytest.raises(ValueError, match="nothing was recorded"):
        record.save(tmp_path / "port.npz", ids=[[1]])
    record("embed", np.ones((1, 1, 3)))
    with pytest.raises(
        ValueError, match=re.escape("embed has shape (1, 1, 3); it must be (b, t, d), and ids")
    ):
        record.save(tmp_path / "port.npz", ids=[[1, 2]])
    assert not list(tmp_path.iterdir())


def test_one_sequence(record: Recorder, tmp_path: Path) -> None:
    record("logits", np.ones((3, 5)))
    record.save(tmp_path / "port.safetensors", ids=[1, 2, 3])
    assert read_trace(tmp_path / "port.safetensors").points["logits"].shape == (1, 3, 5)


class TestJax:
    @pytest.fixture(autouse=True)
    def _jax(self) -> None:
        self.jax = pytest.importorskip("jax")
        self.jnp = self.jax.numpy

    def test_a_compiled_run(self, record: Recorder) -> None:
        jax = self.jax
        params = drawn(LLAMA).to(self.jnp)

        @jax.jit
        def run(params: Params, ids: Any) -> Any:
            return tinyxp.forward(params, ids, tap=record)

        wanted = jax.jit(tinyxp.trace)(params, self.jnp.asarray(IDS))
        for _ in range(2):  # the second time without tracing
            logits = run(params, self.jnp.asarray(IDS))
            assert list(record.points) == points_of(LLAMA)
            assert np.array_equal(record.points["logits"], logits)
            for name, x in record.points.items():
                assert np.allclose(x, wanted[name], rtol=1e-5, atol=1e-5)
            record.clear()
            assert record.points == {}

    def test_bfloat16_and_what_nothing_uses(self, record: Recorder) -> None:
        def f(x: Any) -> Any:
            record("embed", x * 3)
            return x

        self.jax.jit(f)(self.jnp.ones((1, 2, 2), self.jnp.bfloat16))
        assert record.points["embed"].dtype == np.float32
        assert record.points["embed"].tolist() == [[[3.0, 3.0]] * 2]

    def test_gradients_pass(self, record: Recorder) -> None:
        gradient = self.jax.jit(self.jax.grad(lambda x: (record("embed", x * 2.0) ** 2).sum()))
        assert gradient(self.jnp.ones((1, 1, 2))).tolist() == [[[8.0, 8.0]]]
        assert record.points["embed"].tolist() == [[[2.0, 2.0]]]

    def test_faults_are_told(self, record: Recorder, tmp_path: Path) -> None:
        jax, x = self.jax, self.jnp.ones((1, 2, 2))
        with pytest.raises(ValueError, match="known are"):
            jax.jit(lambda x: record("attn.q", x))(x)
        with pytest.raises(ValueError, match=re.escape("logits has shape (2,); it must be (b, t, n)")):
            jax.jit(lambda x: record("logits", x[0, 0]))(x)
        with pytest.raises(ValueError, match="embed has dtype int32"):
            jax.jit(lambda x: record("embed", x.astype(int)))(x)
        twice = jax.jit(lambda x: record("embed", x))
        twice(x)
        twice(x)
        with pytest.raises(
            ValueError, match=r"embed was already recorded in this run; call record.clear\(\)"
        ):
            record.save(tmp_path / "port.npz", ids=[[1, 2]])
        record.clear()
        layers = jax.lax.scan(lambda x, _: (record("blocks.0.residual", x + 1), None), x, None, length=3)
        layers[0].block_until_ready()
        with pytest.raises(ValueError, match="jax.lax.scan, record what they return"):
            _ = record.points
        record.clear()
        jax.vmap(lambda row: record("embed", row))(self.jnp.ones((2, 3, 4)))
        with pytest.raises(ValueError, match="with jax.vmap"):
            _ = record.points


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.nn = self.torch.nn

    @pytest.fixture
    def small(self) -> Any:
        nn, torch = self.nn, self.torch

        class Layer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.up, self.unused = nn.Linear(2, 6), nn.Linear(2, 2)

            def forward(self, x: Any, cache: Any = None) -> Any:
                return cache, {"x": x + self.up(x).sum(-1, keepdim=True)}

        class Port(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(5, 2)
                self.layers = nn.ModuleList(Layer() for _ in range(11))
                self.faulty = False

            def forward(self, ids: Any) -> Any:
                x = self.embed(ids)
                for layer in self.layers:
                    x = layer(x=x)[1]["x"]
                if self.faulty:
                    raise RuntimeError("faulty")
                return x

        torch.manual_seed(0)
        return Port()

    def hooks(self, module: Any) -> int:
        return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())

    def test_patterns_inputs_and_nested_outputs(self, small: Any) -> None:
        torch = self.torch
        ids = torch.tensor([[1, 2, 3]])
        found = record_torch(
            small,
            {
                "layers.{i}": "blocks.{i}.residual",
                "layers.{i}.up:input": "blocks.{i}.mlp_norm",
                "layers.{i}.up": ("blocks.{i}.attn.q", "blocks.{i}.attn.k", "blocks.{i}.attn.v"),
                "layers.0:input": "embed",
                "": "logits",
            },
            ids,
        )
        seen = ("attn.q", "attn.k", "attn.v", "mlp_norm", "residual")
        blocks = [f"blocks.{i}.{name}" for i in range(11) for name in seen]
        assert list(found) == ["embed", *blocks, "logits"]
        x = small.embed(ids)
        for i, layer in enumerate(small.layers):
            assert np.array_equal(found[f"blocks.{i}.mlp_norm"], x.detach().numpy())
            parts = [found[f"blocks.{i}.attn.{part}"] for part in "qkv"]
            assert np.array_equal(np.concatenate(parts, -1), layer.up(x).detach().numpy())
            x = layer(x)[1]["x"]
            assert np.array_equal(found[f"blocks.{i}.residual"], x.detach().numpy())
        assert np.array_equal(found["logits"], found["blocks.10.residual"])
        assert self.hooks(small) == 0

    def test_one_sequence_and_bfloat16(self, small: Any) -> None:
        found = record_torch(small.bfloat16(), {"embed": "embed"}, ids=self.torch.tensor([1, 2, 3]))
        assert found["embed"].shape == (3, 2)
        assert found["embed"].dtype == np.float32

    @pytest.mark.parametrize(
        "points, words",
        [
            ({"layer.{i}.up": "blocks.{i}.mlp.up"}, "no module is at 'layer.{i}.up'; similar: layers.0.up"),
            ({"zzz": "embed"}, "no module is at 'zzz'; similar: none"),
            (
                {"layers.{i}.up": "blocks.0.mlp.up"},
                "layers.1.up: trace point blocks.0.mlp.up was already",
            ),
            ({"layers.0.up": "blocks.{i}.mlp.up"}, "trace point is 'blocks.{i}.mlp.up'; known are"),
            ({"layers.{i}.up": "blocks.{i}.up"}, "trace point is 'blocks.0.up'; known are"),
            ({"layers.{i}.unused": "blocks.{i}.mlp.up"}, "layers.0.unused did not run"),
            ({"layers.0.up:output": "blocks.0.mlp.up"}, "after ':' is 'output'; it must be input"),
            ({"embed:input": "embed"}, "embed:input: trace point embed has dtype int64"),
            (
                {"layers.0.up": ("blocks.0.attn.q",) * 4},
                "layers.0.up has shape (1, 2, 6), which is not 4 equal",
            ),
        ],
    )
    def test_what_does_not_fit(self, small: Any, points: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=re.escape(words)):
            record_torch(small, points, self.torch.tensor([[1, 2]]))
        assert self.hooks(small) == 0

    def test_hooks_go_whatever_happens(self, small: Any) -> None:
        small.faulty = True
        with pytest.raises(RuntimeError, match="faulty"):
            record_torch(small, {"layers.{i}": "blocks.{i}.residual"}, self.torch.tensor([[1]]))
        assert self.hooks(small) == 0
        with pytest.raises(
            ValueError, match="module is a builtin_function_or_method; it must be a module of torch"
        ):
            record_torch(len, {})

    def test_compiled_code_is_refused(self, record: Recorder) -> None:
        with pytest.raises(ValueError, match="embed: it has no values here: record without torch's compiler"):
            self.torch.vmap(record, in_dims=(None, 0))("embed", self.torch.ones(2, 1, 3))


def test_a_fault_in_a_recorded_port_is_seen(record: Recorder, tmp_path: Path) -> None:
    params = drawn(LLAMA)
    wrong = params["blocks.1.attn.o.weight"].T
    tinyxp.forward(Params(dict(params) | {"blocks.1.attn.o.weight": wrong}, LLAMA), IDS, tap=record)
    record.save(tmp_path / "port.npz", ids=IDS)
    first = compare(params, tmp_path / "port.npz").first
    assert first is not None
    assert first.point == "blocks.1.attn.out"


def test_a_bfloat16_port_is_named_so(record: Recorder, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    params = drawn(LLAMA)
    tinyxp.forward(params.to(torch, dtype="bfloat16"), IDS, tap=record)
    record.save(tmp_path / "port.npz", ids=IDS)
    assert compare(params, f"{tmp_path / 'port.npz'}@:bfloat16").agrees
    assert not compare(params, tmp_path / "port.npz").agrees


def test_modules_are_recorded_by_the_library_of_their_class() -> None:
    pytest.importorskip("torch")
    assert tinyxp.doctor.record_torch is tinyxp.doctor.record_module
    with pytest.raises(AttributeError, match="has no attribute 'record_tensorflow'"):
        _ = tinyxp.doctor.record_tensorflow
