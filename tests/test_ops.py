"""The arithmetic: known values, dtypes and extremes of every function, on every backend."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tinyxp
from tinyxp import ops

from .reference import array, distance, float64_on, host

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

EPSILON = {"float64": 2.3e-16, "float32": 1.2e-7, "bfloat16": 7.9e-3, "float16": 9.8e-4}


@pytest.fixture(params=["float64", "float32", "bfloat16", "float16"])
def dtype(request: pytest.FixtureRequest, backend: tinyxp.Backend) -> Iterator[str]:
    with float64_on(backend):
        if request.param not in backend.dtypes():
            pytest.skip(f"{backend.name} has no {request.param}")
        yield request.param


def kind(x: Any) -> str:
    return str(x.dtype).rsplit(".", 1)[-1]


# Linear


def test_linear_is_x_times_the_transpose(backend: tinyxp.Backend) -> None:
    x = array(backend, [[[1.0, 2.0, 3.0]]], "float32")
    w = array(backend, [[1.0, 0.0, 0.0], [0.0, 10.0, 100.0]], "float32")
    b = array(backend, [0.5, -0.5], "float32")
    assert host(ops.linear(x, w, xp=backend.xp)).tolist() == [[[1.0, 320.0]]]
    assert host(ops.linear(x, w, b, xp=backend.xp)).tolist() == [[[1.5, 319.5]]]


# Norms


def norm(backend: tinyxp.Backend, x: Any, dtype: str, eps: float, kind: str = "rms") -> np.ndarray:
    x = array(backend, x, dtype)
    w = array(backend, np.ones(x.shape[-1]), dtype)
    if kind == "rms":
        return host(ops.rms_norm(x, w, eps, xp=backend.xp))
    return host(ops.layer_norm(x, w, 0.0 * w, eps, xp=backend.xp))


def test_layer_norm_divides_by_d(backend: tinyxp.Backend) -> None:
    y = norm(backend, [1.0, 2.0, 3.0, 4.0], "float32", 0.0, "layer")
    np.testing.assert_allclose(y, (np.arange(4) - 1.5) / math.sqrt(1.25), rtol=3e-7)


def test_layer_norm_scales_then_shifts(backend: tinyxp.Backend) -> None:
    x, w, b = (array(backend, v, "float32") for v in ([1.0, 3.0], [2.0, 3.0], [10.0, 20.0]))
    y = host(ops.layer_norm(x, w, b, 0.0, xp=backend.xp))
    np.testing.assert_allclose(y, [8.0, 23.0], rtol=1e-6)


def test_eps_stands_under_the_root(backend: tinyxp.Backend) -> None:
    np.testing.assert_allclose(norm(backend, [1e-4] * 8, "float32", 1e-6), [0.0995037] * 8, rtol=1e-6)
    if "float16" in backend.dtypes():  # where 1e-4 is 1.00017e-4
        assert norm(backend, [1e-4] * 8, "float16", 1e-6).tolist() == [float(np.float16(0.09952))] * 8
    y = norm(backend, [1.0, -1.0], "float32", 3.0, "layer")
    np.testing.assert_allclose(y, [0.5, -0.5], rtol=1e-6)


def test_squares_that_overflow_float16(backend: tinyxp.Backend) -> None:
    if "float16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no float16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert norm(backend, [300.0] * 8, "float16", 1e-5).tolist() == [1.0] * 8
        y = norm(backend, [60000.0, -60000.0], "float16", 1e-5, "layer")
    assert y.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("which", ["rms", "layer"])
def test_a_zero_row_stays_zero(backend: tinyxp.Backend, dtype: str, which: str) -> None:
    y = norm(backend, [[0.0] * 4, [1.0, 2.0, 3.0, 4.0]], dtype, 1e-5, which)
    assert not y[0].any()
    assert y[1].all() or which == "layer"


def test_rms_norm_rounds_before_the_weight(backend: tinyxp.Backend) -> None:
    if "bfloat16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no bfloat16")
    rng = np.random.default_rng(0)
    x = array(backend, rng.normal(size=(64, 8)), "bfloat16")
    w = array(backend, rng.normal(1.0, 0.3, 8), "bfloat16")
    theirs_x, theirs_w = torch.tensor(host(x)).bfloat16(), torch.tensor(host(w)).bfloat16()
    wide = theirs_x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    expected = (theirs_w * normed.bfloat16()).float().numpy()
    one_rounding = (theirs_w.float() * normed).bfloat16().float().numpy()
    ours = host(ops.rms_norm(x, w, 1e-5, xp=backend.xp))
    assert (expected != one_rounding).sum() > 50  # the two orders can be told apart
    assert (ours != expected).mean() < 0.02  # float32 ties that round the other way


# Softmax


def test_softmax_of_huge_values(backend: tinyxp.Backend, dtype: str) -> None:
    big = 6e4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = array(backend, [[big, big, -big, -big], [0.0, -big, -big, -big]], dtype)
        y = host(ops.softmax(x, xp=backend.xp))
    assert y.tolist() == [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]


def test_softmax_along_an_axis(backend: tinyxp.Backend) -> None:
    x = array(backend, [[0.0, 1.0], [math.log(3.0), 1.0]], "float32")
    y = host(ops.softmax(x, axis=0, xp=backend.xp))
    np.testing.assert_allclose(y, [[0.25, 0.5], [0.75, 0.5]], rtol=1e-6)


def test_softmax_of_what_is_visible(backend: tinyxp.Backend, dtype: str) -> None:
    x = array(backend, [[1.0, 1.0, 9.0], [1.0, 2.0, 3.0]], dtype)
    visible = array(backend, [[True, True, False], [False, False, False]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = host(ops.softmax(x, visible=visible, xp=backend.xp))
    assert y.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_an_invisible_nan_or_infinity_does_not_leak(backend: tinyxp.Backend) -> None:
    x = array(backend, [[1.0, 1.0, math.inf, math.nan]], "float32")
    visible = array(backend, [[True, True, False, False]])
    assert host(ops.softmax(x, visible=visible, xp=backend.xp)).tolist() == [[0.5, 0.5, 0.0, 0.0]]


FLOATS = hnp.arrays(
    np.float64, (3, 5), elements=st.floats(-1e4, 1e4, allow_subnormal=False).map(lambda v: round(v, 3))
)


@given(x=FLOATS, visible=hnp.arrays(np.bool_, (3, 5)))
def test_softmax_properties(x: np.ndarray, visible: np.ndarray) -> None:
    for name in ("numpy", "torch", "jax", "strict"):
        backend = tinyxp.backend(name)
        y = host(ops.softmax(array(backend, x, "float32"), visible=array(backend, visible), xp=backend.xp))
        assert np.all(np.isfinite(y))
        assert not y[~visible].any()
        sums = y.sum(-1)
        np.testing.assert_allclose(sums, visible.any(-1), atol=1e-6)
        shifted = array(backend, x + 64.0, "float32")
        moved = host(ops.softmax(shifted, visible=array(backend, visible), xp=backend.xp))
        # Rounding x + 64 to float32 moves it by 5e-4 at most.
        np.testing.assert_allclose(moved, y, atol=1e-3)


# Activations


@pytest.mark.parametrize(
    "function, x, y",
    [
        (ops.gelu_tanh, 1.0, 0.841192),
        (ops.gelu, 1.0, 0.841345),
        (ops.silu, 0.8, 0.5520),
        (ops.silu, 1.0, 0.731059),
        (ops.silu, -1.0, -0.268941),
        (ops.gelu_tanh, -1.0, -0.158808),
        (ops.gelu, -1.0, -0.158655),
    ],
)
def test_activation_values(backend: tinyxp.Backend, function: Any, x: float, y: float) -> None:
    found = float(host(function(array(backend, [x], "float32"), xp=backend.xp))[0])
    assert abs(found - y) <= (5e-5 if y == 0.5520 else 6e-7)


def test_activations_in_float64(backend: tinyxp.Backend) -> None:
    x = np.linspace(-12.0, 12.0, 481)
    exact = {
        ops.gelu: [v / 2.0 * (1.0 + math.erf(v / math.sqrt(2.0))) for v in x],
        ops.silu: [v / (1.0 + math.exp(-v)) for v in x],
        ops.gelu_tanh: [
            v / 2.0 * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (v + 0.044715 * v**3))) for v in x
        ],
    }
    with float64_on(backend):
        for function, expected in exact.items():
            found = host(function(array(backend, x, "float64"), xp=backend.xp))
            np.testing.assert_allclose(found, expected, rtol=3e-15, atol=4e-14)


def test_erf(backend: tinyxp.Backend) -> None:
    x = np.concatenate([np.linspace(-7.0, 7.0, 1401), [-1e30, -1e-300, 0.0, 1e-300, 1e30]])
    with float64_on(backend), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = host(ops.erf(array(backend, x, "float64"), xp=backend.xp))
    np.testing.assert_allclose(found, [math.erf(v) for v in x], rtol=0.0, atol=3e-15)


def test_the_two_gelus_differ_most_near_minus_2_70() -> None:
    x = np.linspace(-6.0, 6.0, 120001)
    difference = np.abs(ops.gelu(x, xp=np) - ops.gelu_tanh(x, xp=np))
    assert difference.max() == pytest.approx(4.7e-4, abs=5e-6)
    assert abs(x[difference.argmax()]) == pytest.approx(2.70, abs=0.02)


@pytest.mark.parametrize("function", [ops.silu, ops.gelu, ops.gelu_tanh])
def test_activations_at_extremes(backend: tinyxp.Backend, dtype: str, function: Any) -> None:
    values = [-6e4, -1000.0, -300.0, -88.5, 0.0, 88.5, 300.0, 1000.0, 6e4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = array(backend, values, dtype)
        y = host(function(x, xp=backend.xp))
    rounded = host(x)
    assert np.array_equal(y[5:], rounded[5:])
    # exp(-88.5) * 88.5 is 3e-37; anything that small may be flushed.
    assert np.all(np.abs(y[:5]) <= 1e-35)


@pytest.mark.parametrize("function", [ops.silu, ops.gelu, ops.gelu_tanh])
def test_gradients_at_extremes(function: Any) -> None:
    values = [-1e4, -1000.0, -89.0, 0.0, 89.0, 1000.0, 1e4]
    expected = [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0]
    x = torch.tensor(values, requires_grad=True)
    function(x, xp=tinyxp.backend("torch").xp).sum().backward()
    np.testing.assert_allclose(x.grad, expected, atol=1e-6)
    grad = jax.grad(lambda x: function(x, xp=jax.numpy).sum())(jax.numpy.asarray(values))
    np.testing.assert_allclose(grad, expected, atol=1e-6)


# Rotary positions


def turn(backend: tinyxp.Backend, x: Any, angles: Any, dtype: str = "float32") -> np.ndarray:
    xp = backend.xp
    angles = array(backend, np.asarray(angles, dtype=float)[None, None], "float32")
    y = ops.rotary(array(backend, [[x]], dtype), xp.cos(angles), xp.sin(angles), xp=xp)
    assert kind(y) == dtype
    return host(y)[0, 0]


def test_rotary_pairs_halves(backend: tinyxp.Backend) -> None:
    y = turn(backend, [[1.0, 2.0, 3.0, 4.0]], [[1.0, 0.01]])
    np.testing.assert_allclose(y, [[-1.984111, 1.959901, 2.462378, 4.019800]], atol=1e-6)


def test_rotary_at_position_0_is_the_identity(backend: tinyxp.Backend) -> None:
    assert turn(backend, [[1.0, 2.0, 3.0, 4.0]], [[0.0, 0.0]]).tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_rotary_turns_each_pair_alone(backend: tinyxp.Backend) -> None:
    y = turn(backend, [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], [[math.pi / 2, 7.0], [7.0, math.pi / 2]])
    np.testing.assert_allclose(y, [[0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0]], atol=1e-6)


# Attention


def attend(
    backend: tinyxp.Backend, q: Any, k: Any, v: Any, visible: Any, dtype: str = "float32"
) -> tuple[np.ndarray, dict[str, Any]]:
    points: dict[str, Any] = {}

    def tap(name: str, x: Any, /) -> Any:
        points[name] = x
        return x

    q, k, v = (array(backend, x, dtype) for x in (q, k, v))
    heads = ops.attention(q, k, v, array(backend, visible), xp=backend.xp, tap=tap)
    assert kind(heads) == dtype
    return host(heads), points


def test_attention_values_and_taps(backend: tinyxp.Backend) -> None:
    q = [[[[2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]]]
    k = [[[[math.log(3.0), 0.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]]]]
    v = [[[[4.0, 0.0, 1.0, 0.0], [0.0, 8.0, 1.0, 0.0]]]]
    visible = [[[[True, False], [True, True]]]]
    heads, points = attend(backend, q, k, v, visible)
    # Scaled by 1/sqrt(4), the second query scores ln 3 and 0.
    np.testing.assert_allclose(host(points["scores"])[0, 0], [[math.log(3.0), 0.0]] * 2, rtol=1e-6)
    np.testing.assert_allclose(host(points["weights"])[0, 0], [[1.0, 0.0], [0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(heads[0, 0], [[4.0, 0.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0]], rtol=1e-6)


def test_query_heads_share_neighbouring_key_heads(backend: tinyxp.Backend) -> None:
    """Four query heads on two key/value heads: 0 and 1 read the first, 2 and 3 the second."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4, 3, 4)), rng.normal(size=(2, 2, 3, 4)), rng.normal(size=(2, 2, 3, 4))
    visible = np.tril(np.ones((3, 3), dtype=bool))[None, None]
    heads, points = attend(backend, q, k, v, visible)
    for i in range(4):
        scores = q[:, i] @ k[:, i // 2].swapaxes(1, 2) / 2.0
        weights = np.exp(scores) * visible[0]
        weights /= weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(host(points["weights"])[:, i], weights, atol=1e-6)
        np.testing.assert_allclose(heads[:, i], weights @ v[:, i // 2], atol=1e-5)


def test_scores_that_overflow_float16_on_the_way(backend: tinyxp.Backend) -> None:
    if "float16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no float16")
    x = np.full((1, 1, 2, 64), 32.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads, points = attend(backend, x, x, x, np.ones((1, 1, 2, 2), dtype=bool), "float16")
    assert kind(points["scores"]) == kind(points["weights"]) == "float16"
    assert host(points["scores"]).tolist() == [[[[8192.0] * 2] * 2]]
    assert heads.tolist() == [[[[32.0] * 64] * 2]]


def test_a_query_that_sees_nothing_gets_zeros(backend: tinyxp.Backend, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    visible = [[[[False] * 3, [True, False, False], [False] * 3]]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heads, points = attend(backend, x, x, x, visible, dtype)
    assert not heads[:, :, [0, 2]].any()
    assert not host(points["weights"])[:, :, [0, 2]].any()
    assert np.array_equal(heads[:, :, 1], host(array(backend, x, dtype))[:, :, 0])


def test_gradients_past_a_query_that_sees_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    visible = np.array([[[[False] * 3, [True, False, False], [False] * 3]]])
    txp = tinyxp.backend("torch").xp
    tensors = [torch.tensor(x, requires_grad=True) for _ in range(3)]
    ops.attention(*tensors, torch.tensor(visible), xp=txp).square().sum().backward()

    def total(q: Any, k: Any, v: Any) -> Any:
        return (ops.attention(q, k, v, visible, xp=jax.numpy) ** 2).sum()

    there = jax.grad(total, argnums=(0, 1, 2))(*[jax.numpy.asarray(x)] * 3)
    for tensor, grad in zip(tensors, there, strict=True):
        assert torch.isfinite(tensor.grad).all()
        assert distance(tensor.grad, grad) <= 1e-5
    # Only the value that the second query sees has a gradient; one key alone has weight 1 whatever it is.
    assert np.array_equal(
        host(tensors[2].grad) != 0.0, np.array([[[[True] * 4, [False] * 4, [False] * 4]] * 2])
    )
    assert not tensors[0].grad[:, :, [0, 2]].any()


# The cache


@pytest.mark.parametrize("start", range(4))
def test_write_cache(backend: tinyxp.Backend, start: int) -> None:
    cache = np.arange(2 * 1 * 5 * 3).reshape(2, 1, 5, 3).astype(np.float32)
    new = -np.ones((2, 1, 2, 3), dtype=np.float32)
    expected = cache.copy()
    expected[:, :, start : start + 2] = new
    before = array(backend, cache)
    written = ops.write_cache(
        before, array(backend, new), array(backend, start), array(backend, np.arange(5)), xp=backend.xp
    )
    assert np.array_equal(host(written), expected)
    assert np.array_equal(host(before), cache)


# Loss


def cross_entropy(backend: tinyxp.Backend, logits: Any, targets: Any, dtype: str = "float32") -> float:
    targets = array(backend, np.asarray(targets, dtype=backend.index_dtype))
    loss = ops.cross_entropy(array(backend, logits, dtype), targets, xp=backend.xp)
    assert tuple(loss.shape) == ()
    assert kind(loss) == ("float64" if dtype == "float64" else "float32")
    return float(host(loss))


def test_cross_entropy_of_uniform_logits(backend: tinyxp.Backend, dtype: str) -> None:
    for level in (0.0, 100.0, -6e4):
        logits = np.full((1, 3, 4), level)
        assert cross_entropy(backend, logits, [[0, 1, 3]], dtype) == pytest.approx(math.log(4.0), rel=2e-7)


def test_cross_entropy_of_ten_at_the_true_next_token(backend: tinyxp.Backend) -> None:
    ids = np.arange(5)
    logits = 10.0 * np.eye(5)[None, 1:]  # at position i, ten at id i + 1
    assert cross_entropy(backend, logits, ids[None, 1:]) == pytest.approx(
        0.000181583, abs=1.2e-7
    )  # float32 near 1
    # Not shifted, every target misses; shifted twice, too, and the last has none.
    assert cross_entropy(backend, logits, ids[None, :-1]) == pytest.approx(10.000181583, abs=2e-6)
    whole = 10.0 * np.eye(5)[None, [1, 2, 3, 4, 4]]
    with_last = cross_entropy(backend, whole, ids[None])
    assert with_last == pytest.approx((4 * 10.000181583 + 0.000181583) / 5, abs=2e-6)


def test_cross_entropy_is_a_mean_over_what_counts(backend: tinyxp.Backend) -> None:
    rows = np.log([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]])
    half, quarter, eighth = math.log(2.0), math.log(4.0), math.log(8.0)
    for targets, expected in [
        ([[0, 0], [1, 0]], (half + 2 * quarter + eighth) / 4),
        ([[0, -100], [-100, -100]], half),
        ([[0, -100], [-100, 1]], (half + eighth) / 2),
        ([[-100, -100], [-100, -100]], 0.0),
    ]:
        assert cross_entropy(backend, rows, targets) == pytest.approx(expected, rel=3e-7)


def test_cross_entropy_at_extremes(backend: tinyxp.Backend, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = cross_entropy(backend, [[[6e4, -6e4, 0.0]]], [[1]], dtype)
    gap = float(np.diff(host(array(backend, [-6e4, 6e4], dtype)).astype(np.float64))[0])
    assert loss == pytest.approx(gap, rel=1e-6)


def test_cross_entropy_without_a_target_has_no_gradient() -> None:
    txp = tinyxp.backend("torch").xp
    x = torch.randn(1, 2, 3, requires_grad=True)
    ops.cross_entropy(x, torch.full((1, 2), -100), xp=txp).backward()
    assert not x.grad.any()
    targets = jax.numpy.full((1, 2), -100)
    assert not jax.grad(lambda x: ops.cross_entropy(x, targets, xp=jax.numpy))(
        jax.numpy.ones((1, 2, 3))
    ).any()


def test_cross_entropy_gradient_is_softmax_minus_one_hot() -> None:
    x = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]], requires_grad=True)
    ops.cross_entropy(x, torch.tensor([[0, 1]]), xp=tinyxp.backend("torch").xp).backward()
    np.testing.assert_allclose(x.grad, [[[-0.375, 0.375], [0.25, -0.25]]], atol=1e-6)


# Dtypes


def every_op(x: Any, w: Any, xp: Any) -> dict[str, Any]:
    """Each op on x (2, 4) with weights w (4, 4) of a dtype that may differ."""
    heads = xp.reshape(x, (1, 1, 2, 4))
    angles = xp.astype(xp.reshape(x[:, :2], (1, 1, 2, 2)), xp.float32)
    visible = xp.ones((1, 1, 2, 2), dtype=xp.bool)
    return {
        "linear": ops.linear(x, w, xp=xp),
        "linear with a bias": ops.linear(x, w, w[0, :], xp=xp),
        "layer_norm": ops.layer_norm(x, w[0, :], w[1, :], 1e-5, xp=xp),
        "rms_norm": ops.rms_norm(x, w[0, :], 1e-5, xp=xp),
        "softmax": ops.softmax(x, xp=xp),
        "silu": ops.silu(x, xp=xp),
        "gelu": ops.gelu(x, xp=xp),
        "gelu_tanh": ops.gelu_tanh(x, xp=xp),
        "rotary": ops.rotary(heads, xp.cos(angles), xp.sin(angles), xp=xp),
        "attention": ops.attention(heads, heads, heads, visible, xp=xp),
        "write_cache": ops.write_cache(heads, heads[:, :, :1, :], 0, xp.arange(2), xp=xp),
    }


def test_the_dtype_of_x_is_the_dtype_of_the_result(backend: tinyxp.Backend) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4)), rng.normal(size=(4, 4))
    exact = every_op(x, w, np)
    run = partial(every_op, xp=backend.xp)
    if backend.name == "jax":
        run = jax.jit(run)  # one compilation is cheaper than one an operation
    with float64_on(backend):
        for of_x, of_w in itertools.product(backend.dtypes(), repeat=2):
            found = run(array(backend, x, of_x), array(backend, w, of_w))
            for name, y in found.items():
                assert kind(y) == of_x, (name, of_x, of_w)
                # Some eight roundings of numbers of size 2 to 4, in the coarser of the two dtypes.
                allowed = 32.0 * max(EPSILON[of_x], EPSILON[of_w], EPSILON["float32"])
                assert distance(y, exact[name]) <= allowed, (name, of_x, of_w)


def test_scalars_do_not_widen(backend: tinyxp.Backend) -> None:
    """float32 / np.sqrt(64) is float64 on NumPy: no op may use a NumPy scalar."""
    x = array(backend, np.ones((2, 4)), "float32")
    assert {kind(y) for y in every_op(x, backend.xp.concat([x, x], axis=0), backend.xp).values()} == {
        "float32"
    }


def test_ops_do_not_change_their_arguments(backend: tinyxp.Backend) -> None:
    x, w = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((2, 4), (4, 4)))
    there = array(backend, x.copy()), array(backend, w.copy())
    every_op(*there, backend.xp)
    assert np.array_equal(host(there[0]), x)
    assert np.array_equal(host(there[1]), w)


def gradients_agree(f: Callable[..., Any], x: np.ndarray) -> None:
    """torch's gradient, JAX's, and central differences in float64."""
    t = torch.tensor(x, requires_grad=True)
    f(t, xp=tinyxp.backend("torch").xp).sin().sum().backward()
    with jax.enable_x64(True):
        j = np.asarray(jax.grad(lambda x: jax.numpy.sin(f(x, xp=jax.numpy)).sum())(jax.numpy.asarray(x)))
    step = 1e-6
    numeric = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        high, low = (np.sin(f(x + sign * moved, xp=np)).sum() for sign in (1.0, -1.0))
        numeric[index] = (high - low) / (2.0 * step)
    np.testing.assert_allclose(t.grad, j, atol=1e-12)
    np.testing.assert_allclose(t.grad, numeric, atol=1e-8)


@pytest.mark.parametrize("name", ["softmax", "silu", "gelu", "gelu_tanh", "rms_norm", "layer_norm"])
def test_gradients(name: str) -> None:
    function = getattr(ops, name)
    weight = np.array([1.0, 0.5, -2.0, 1.5])

    def f(x: Any, *, xp: Any) -> Any:
        w = xp.asarray(weight, dtype=x.dtype)
        extra = {"rms_norm": (w, 1e-5), "layer_norm": (w, w, 1e-5)}.get(name, ())
        return function(x, *extra, xp=xp)

    gradients_agree(f, np.random.default_rng(0).normal(size=(2, 4)))
