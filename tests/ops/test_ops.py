"""Linear maps, norms, softmax, activations and the loss: known values and extremes, on every backend."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tinyxp
from tests.reference import array, distance, float64_on, host, kind, libraries
from tinyxp import ops
from tinyxp.dtypes import EPSILON

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
    row = np.array([1.0, 2.0, 3.0, 4.0])
    expected = row / math.sqrt(7.5 + 1e-5) if which == "rms" else (row - 2.5) / math.sqrt(1.25 + 1e-5)
    assert y[0].tolist() == [0.0] * 4
    # The root and the quotient, and numbers up to 1.5.
    assert distance(y[1], expected) <= 2.0 * EPSILON[dtype]


def test_rms_norm_rounds_before_the_weight(backend: tinyxp.Backend) -> None:
    if "bfloat16" not in backend.dtypes():
        pytest.skip(f"{backend.name} has no bfloat16")
    torch = pytest.importorskip("torch")
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


@pytest.mark.parametrize("name", libraries("numpy", "torch", "jax", "strict"))
@given(x=FLOATS, visible=hnp.arrays(np.bool_, (3, 5)))
def test_softmax_properties(name: str, x: np.ndarray, visible: np.ndarray) -> None:
    backend = tinyxp.backend(name)
    y = host(ops.softmax(array(backend, x, "float32"), visible=array(backend, visible), xp=backend.xp))
    assert np.all(np.isfinite(y))
    assert not y[~visible].any()
    # Five numbers of at most 1, each a few roundings off.
    np.testing.assert_allclose(y.sum(-1), visible.any(-1), atol=1e-6)
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
