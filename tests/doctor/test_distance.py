"""Distances by hand, and where rounding ends and a fault begins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinyxp.doctor.distance import (
    Distance,
    excess,
    measure,
    narrow_dtype,
    relative_excess,
    rms_by_position,
    round_to,
)
from tinyxp.dtypes import EPSILON

ALL = np.ones((1, 1), bool)
INF, NAN = math.inf, math.nan


def test_rms_and_worst_by_hand() -> None:
    x, y = np.array([[1.0, 5.0], [2.0, -1.0]]), np.array([[1.0, 2.0], [2.0, 3.0]])
    found = measure(x, y, ALL)
    assert found == Distance(2.5, 4.0, (1, 1), math.sqrt(18 / 4), 3.0)


def test_what_does_not_count_is_in_none_of_the_figures() -> None:
    x, y = np.array([[1.0, 2.0], [7.0, NAN]]), np.array([[1.0, 5.0], [100.0, 1.0]])
    found = measure(x, y, np.array([[True], [False]]))
    assert found == Distance(math.sqrt(9 / 2), 3.0, (0, 1), math.sqrt(26 / 2), 5.0)


def test_nothing_counts() -> None:
    assert measure(np.ones((1, 2)), np.zeros((1, 2)), ~ALL) == Distance(0.0, 0.0, (0, 0), 0.0, 0.0)


@pytest.mark.parametrize("a", [NAN, INF, -INF])
@pytest.mark.parametrize("b", [NAN, INF, -INF, 1.0])
def test_a_number_that_is_not_finite_is_equal_to_itself_and_endlessly_far_from_all_others(
    a: float, b: float
) -> None:
    same = a == b or (math.isnan(a) and math.isnan(b))
    for x, y in ((a, b), (b, a)):
        found = measure(np.array([[0.0, x]]), np.array([[0.0, y]]), ALL)
        assert (found.rms, found.worst) == ((0.0, 0.0) if same else (INF, INF))
        assert np.isfinite([found.scale, found.largest]).all()


def test_float16_is_subtracted_in_float64() -> None:
    x = np.array([[6e4, 1.0]], np.float16)
    assert measure(x, -x, ALL).worst == 2 * float(x[0, 0])  # more than float16 holds


def test_by_position_by_hand() -> None:
    x = np.arange(12.0).reshape(1, 3, 4)
    y = x + np.array([0.0, 1.0, 2.0])[None, :, None]
    y[0, 1, 3] = 1e9
    counts = np.ones((1, 3, 4), bool)
    counts[0, 1, 3] = False
    assert rms_by_position(y, x, counts, 1) == (0.0, 1.0, 2.0)
    assert rms_by_position(y.swapaxes(1, 2), x.swapaxes(1, 2), counts.swapaxes(1, 2), 2) == (0.0, 1.0, 2.0)


@pytest.mark.parametrize("dtype", EPSILON)
def test_ten_times_the_cost_of_rounding_and_one_rounding_of_the_result_are_allowed(dtype: str) -> None:
    noise = Distance(0.5, 2.0, (0,), 1.0, 3.0)
    limit = Distance(5.0 + 3.0 * EPSILON[dtype], 32.0 + 7.0 * EPSILON[dtype], (0,), 3.0, 7.0)
    assert excess(limit, noise, dtype) == 1.0
    assert excess(limit._replace(rms=2 * limit.rms), noise, dtype) == 2.0
    assert excess(limit._replace(worst=3 * limit.worst), noise, dtype) == 3.0


def test_where_nothing_may_differ_any_difference_is_endless() -> None:
    none = Distance(0.0, 0.0, (0,), 0.0, 0.0)
    assert excess(none, none, "float32") == relative_excess(none, "float32") == 0.0
    some = none._replace(rms=1e-30, worst=1e-30)
    assert excess(some, none, "float32") == relative_excess(some, "float32") == INF


def test_where_a_right_implementation_overflows_anything_finite_may_be_and_nothing_is_a_fault() -> None:
    endless = Distance(INF, INF, (0,), 1.0, 1.0)
    assert excess(endless, endless, "float16") == 0.0
    assert excess(Distance(3.0, 9.0, (0,), 1.0, 1.0), endless, "float16") == 0.0


def test_rounding_to_each_dtype_by_hand() -> None:
    x = np.array([1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-8 + 2.0**-20, -3.0, 1e39, NAN])
    found = round_to(x, "bfloat16")
    assert found[:5].tolist() == [1.0, 1.0, 1.0 + 2.0**-6, 1.0 + 2.0**-7, -3.0]  # ties go to even
    assert np.isinf(found[5])
    assert np.isnan(found[6])
    assert round_to(np.array([7e4, 2049.0]), "float16").tolist() == [INF, 2048.0]
    assert round_to(x, None) is x
    assert round_to(np.array([0.1]), "float32")[0] == float(np.float32(0.1))


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e3
    assert np.array_equal(round_to(x, "bfloat16"), torch.from_numpy(x).to(torch.bfloat16).double().numpy())


def test_a_trace_with_few_digits_is_told_from_one_with_more() -> None:
    x = np.random.default_rng(1).normal(size=(4, 100))
    for narrow in ("bfloat16", "float16", "float32"):
        few = round_to(x, narrow)
        assert narrow_dtype({"a": few}, "float64") == narrow
        assert narrow_dtype({"a": few[0], "b": few[1], "c": x[0]}, "float64") is None  # 2 of 3
        assert narrow_dtype({"a": few[0], "b": few[1], "c": few[2], "d": x[0]}, "float64") == narrow
    assert narrow_dtype({"a": round_to(x, "float16").astype(np.float32)}, "float32") == "float16"
    assert narrow_dtype({"a": x.astype(np.float32)}, "float32") is None
    assert narrow_dtype({"a": round_to(x, "bfloat16")}, "bfloat16") is None
    assert narrow_dtype({"a": x}, "float64") is None
    assert narrow_dtype({"a": np.full(3, np.nan)}, "float32") is None
    assert narrow_dtype({"a": np.zeros(100), "b": np.eye(9)}, "float32") is None  # in any dtype
    assert narrow_dtype({"a": np.zeros(100), "b": round_to(x, "float16")}, "float32") == "float16"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_rounding_that_is_always_allowed_is_the_dtypes_own(dtype: str) -> None:
    """A result exactly one unit in the last place off is within the limit, two are not."""
    one = np.ones((1, 1), dtype)
    step = np.nextafter(one, np.asarray(2, dtype), dtype=dtype)
    exact = Distance(0.0, 0.0, (0, 0), 1.0, 1.0)
    assert excess(measure(step, one, ALL), exact, dtype) == 1.0
    assert excess(measure(step + (step - one), one, ALL), exact, dtype) == 2.0
