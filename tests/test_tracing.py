"""Trace points: names, order, shapes, dtypes, meaning; a tap that sees and patches every one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinyxp
from tests.reference import (
    GPT2_CONFIG,
    IDS,
    LLAMA_CONFIG,
    compiled,
    distance,
    drawn,
    filled,
    float64_on,
    host,
)
from tinyxp import Config, Params, forward, trace

LLAMA_SHAPES = {
    "attn_norm": (2, 5, 8),
    "attn.q": (2, 5, 24),
    "attn.k": (2, 5, 12),
    "attn.v": (2, 5, 12),
    "attn.q_rotated": (2, 2, 5, 12),
    "attn.k_rotated": (2, 1, 5, 12),
    "attn.scores": (2, 2, 5, 5),
    "attn.weights": (2, 2, 5, 5),
    "attn.heads": (2, 5, 24),
    "attn.out": (2, 5, 8),
    "attn_residual": (2, 5, 8),
    "mlp_norm": (2, 5, 8),
    "mlp.gate": (2, 5, 12),
    "mlp.up": (2, 5, 12),
    "mlp.hidden": (2, 5, 12),
    "mlp.out": (2, 5, 8),
    "residual": (2, 5, 8),
}
WIDE = replace(LLAMA_CONFIG, head_dim=12)


def test_names_order_and_shapes(backend: tinyxp.Backend) -> None:
    expected = {"embed": (2, 5, 8)}
    for i in range(2):
        expected |= {f"blocks.{i}.{name}": shape for name, shape in LLAMA_SHAPES.items()}
    expected |= {"final_norm": (2, 5, 8), "logits": (2, 5, 11)}
    points = trace(drawn(WIDE).to(backend.xp), IDS * 2)
    assert {name: tuple(x.shape) for name, x in points.items()} == expected
    assert list(points) == list(expected)
    assert all(map(backend.is_array, points.values()))


def test_shapes_of_the_default_model(backend: tinyxp.Backend) -> None:
    """Four query heads on two of keys and values, head size 8: q and k split, v before it is."""
    points = compiled(backend, trace)(tinyxp.init(Config()).to(backend.xp), np.asarray(IDS * 2))
    shapes = {name: tuple(x.shape) for name, x in points.items()}
    assert shapes["embed"] == (2, 5, 32)
    for i in range(2):
        attn, mlp = f"blocks.{i}.attn", f"blocks.{i}.mlp"
        assert shapes[f"{attn}.q"] == (2, 5, 32)
        assert shapes[f"{attn}.k"] == shapes[f"{attn}.v"] == (2, 5, 16)
        assert shapes[f"{attn}.q_rotated"] == (2, 4, 5, 8)
        assert shapes[f"{attn}.k_rotated"] == (2, 2, 5, 8)
        assert shapes[f"{attn}.scores"] == shapes[f"{attn}.weights"] == (2, 4, 5, 5)
        assert shapes[f"{attn}.heads"] == shapes[f"{attn}.out"] == (2, 5, 32)
        assert shapes[f"{mlp}.gate"] == shapes[f"{mlp}.up"] == shapes[f"{mlp}.hidden"] == (2, 5, 64)
        assert shapes[f"{mlp}.out"] == shapes[f"blocks.{i}.residual"] == (2, 5, 32)
    assert shapes["logits"] == (2, 5, 128)


def test_q_k_and_v_after_the_split(backend: tinyxp.Backend) -> None:
    """What attention is given, v too."""
    seen = []

    def attention(q: Any, k: Any, v: Any, visible: Any, *, xp: Any, tap: Any) -> Any:
        seen.append((tuple(q.shape), tuple(k.shape), tuple(v.shape)))
        return tinyxp.ops.attention(q, k, v, visible, xp=xp, tap=tap)

    run = compiled(backend, partial(forward, kernels={"attention": attention}))
    run(tinyxp.init(Config()).to(backend.xp), np.asarray(IDS * 2))
    assert seen == [((2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8))] * 2


def test_gpt2_has_neither_rotation_nor_gate() -> None:
    names = list(trace(drawn(GPT2_CONFIG), IDS))
    left_out = {"attn.q_rotated", "attn.k_rotated", "mlp.gate"}
    blocks = [f"blocks.{i}.{name}" for i in range(2) for name in LLAMA_SHAPES if name not in left_out]
    assert names == ["embed", *blocks, "final_norm", "logits"]


def test_every_point_has_the_dtype_of_the_parameters(backend: tinyxp.Backend) -> None:
    ids, mask = np.asarray(IDS), np.asarray([[False] + [True] * 4])
    for config in (LLAMA_CONFIG, GPT2_CONFIG, replace(GPT2_CONFIG, mlp="gelu")):
        with float64_on(backend):
            for dtype in backend.dtypes():
                if backend.name == "jax" and (dtype == "float16" or config.mlp == "gelu"):
                    continue  # bfloat16 and the other GELU cover them; each is one more slow compilation
                arrays = drawn(replace(config, mlp="gelu_tanh") if config.mlp == "gelu" else config)
                params = Params(dict(arrays), config).to(backend.xp, dtype=dtype)
                points = compiled(backend, trace)(params, ids, mask=mask)
                assert {str(x.dtype).rpartition(".")[2] for x in points.values()} == {dtype}


@pytest.mark.parametrize("config", [GPT2_CONFIG, LLAMA_CONFIG], ids=["gpt2", "llama"])
def test_what_the_points_mean(backend: tinyxp.Backend, config: Config) -> None:
    """Each is recomputed on NumPy from those before it."""
    params = filled(config)
    points = {
        name: host(x)[0].astype(float)
        for name, x in trace(params.to(backend.xp, dtype="float32"), IDS).items()
    }
    hd, h, g = config.head_dim, config.n_heads, config.n_kv_heads

    def heads(x: np.ndarray, n: int) -> np.ndarray:
        return x.reshape(5, n, hd).swapaxes(0, 1)

    for i in range(2):
        at = {name.removeprefix(f"blocks.{i}."): x for name, x in points.items()}

        def matrix(name: str, x: np.ndarray, i: int = i) -> np.ndarray:
            bias = params.get(f"blocks.{i}.{name}.bias", 0.0)
            return x @ params[f"blocks.{i}.{name}.weight"].T + bias

        same = {f"attn.{part}": matrix(f"attn.{part}", at["attn_norm"]) for part in "qkv"}
        q = at.get("attn.q_rotated", heads(at["attn.q"], h))
        k = at.get("attn.k_rotated", heads(at["attn.k"], g))
        same["attn.scores"] = q @ np.repeat(k, h // g, 0).swapaxes(1, 2) / np.sqrt(hd)
        weights = np.where(np.tril(np.ones((5, 5), dtype=bool)), np.exp(at["attn.scores"]), 0.0)
        same["attn.weights"] = weights / weights.sum(-1, keepdims=True)
        joined = at["attn.weights"] @ np.repeat(heads(at["attn.v"], g), h // g, 0)
        same["attn.heads"] = joined.swapaxes(0, 1).reshape(5, h * hd)
        same["attn.out"] = matrix("attn.o", at["attn.heads"])
        before = points["embed"] if i == 0 else points["blocks.0.residual"]
        same["attn_residual"] = before + at["attn.out"]
        same["mlp.up"] = matrix("mlp.up", at["mlp_norm"])
        if "mlp.gate" in at:
            same["mlp.gate"] = matrix("mlp.gate", at["mlp_norm"])
            same["mlp.hidden"] = at["mlp.gate"] / (1.0 + np.exp(-at["mlp.gate"])) * at["mlp.up"]
        same["mlp.out"] = matrix("mlp.down", at["mlp.hidden"])
        same["residual"] = at["attn_residual"] + at["mlp.out"]
        for name, x in same.items():
            assert distance(at[name], x) <= 5e-6, (i, name)
    table = params.get("head.weight", params["embed.weight"])
    assert distance(points["logits"], points["final_norm"] @ table.T) <= 5e-6


def test_scores_stand_before_the_mask() -> None:
    points = trace(drawn(LLAMA_CONFIG), IDS)
    scores, weights = points["blocks.0.attn.scores"], points["blocks.0.attn.weights"]
    above = np.triu(np.ones((5, 5), dtype=bool), 1)
    assert (scores[:, :, above] != 0.0).all()
    assert np.isfinite(scores).all()
    assert not weights[:, :, above].any()


def test_trace_is_forward(backend: tinyxp.Backend) -> None:
    params = drawn(LLAMA_CONFIG).to(backend.xp)
    mask, positions = [[False, True, True, True, True]], [[0, 3, 4, 7, 9]]
    points = trace(params, IDS, mask=mask, positions=positions)
    assert np.array_equal(host(points["logits"]), host(forward(params, IDS, mask=mask, positions=positions)))
    assert not np.array_equal(host(points["logits"]), host(forward(params, IDS)))


def test_trace_converts() -> None:
    torch = pytest.importorskip("torch")
    assert isinstance(trace(drawn(LLAMA_CONFIG), IDS, xp=torch)["embed"], torch.Tensor)


@pytest.mark.parametrize("config", [GPT2_CONFIG, LLAMA_CONFIG], ids=["gpt2", "llama"])
def test_every_point_can_be_patched(config: Config) -> None:
    """What a tap returns goes on: a change at any point changes the logits, and nothing before it."""
    params = drawn(config)
    plain = trace(params, IDS)
    names = list(plain)
    for at, patched in enumerate(names):
        points: dict[str, Any] = {}

        def tap(name: str, x: Any, patched: str = patched, points: dict[str, Any] = points) -> Any:
            points[name] = x
            return -x if name == patched else x

        logits = forward(params, IDS, tap=tap)
        assert list(points) == names
        assert distance(logits, plain["logits"]) > 1e-4, patched
        for name in names[: at + 1]:
            assert np.array_equal(points[name], plain[name]), (patched, name)


def test_tracing_under_jit() -> None:
    jax = pytest.importorskip("jax")
    params = drawn(LLAMA_CONFIG).to(jax.numpy)
    points = jax.jit(trace)(params, np.asarray(IDS))
    eager = trace(drawn(LLAMA_CONFIG), IDS)
    assert set(points) == set(eager)
    for name, x in points.items():
        assert distance(x, eager[name]) <= 1e-5, name


@pytest.mark.parametrize("tap", [3, "logits"], ids=repr)
def test_a_tap_is_a_function(tap: Any) -> None:
    with pytest.raises(ValueError, match=rf"^tap is {tap!r}; it must be a function of a name and an array$"):
        forward(drawn(LLAMA_CONFIG), IDS, tap=tap)
