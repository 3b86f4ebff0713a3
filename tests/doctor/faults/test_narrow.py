"""Arithmetic in few digits."""

from __future__ import annotations

import numpy as np
import pytest

from tinyxp import ops
from tinyxp.doctor.distance import round_to
from tinyxp.doctor.faults.narrow import Narrow, compute_in, narrow, widen

X = np.random.default_rng(0).normal(size=(3, 8))


def test_each_result_is_rounded_and_so_is_each_operand() -> None:
    x = narrow(X, "bfloat16")
    y = x * X
    assert isinstance(y, Narrow)
    assert np.array_equal(widen(y), round_to(round_to(X, "bfloat16") ** 2, "bfloat16"))
    assert np.array_equal(widen(np.mean(x, axis=-1)), round_to(widen(np.mean(x, axis=-1)), "bfloat16"))
    assert (x > 0.0).dtype == bool


def test_a_reciprocal_root_is_that_of_the_rounded_root() -> None:
    x = narrow(np.abs(X), "bfloat16")
    assert np.array_equal(widen(x**-0.5), 1.0 / round_to(np.sqrt(widen(x)), "bfloat16"))


@pytest.mark.parametrize(("digits", "error"), [("bfloat16", 2.0**-7), ("float16", 2.0**-10)])
def test_a_kernel_in_few_digits_is_off_by_about_their_epsilon(digits: str, error: float) -> None:
    right = ops.rms_norm(X, np.ones(8), 1e-5, xp=np)  # type: ignore[arg-type]
    wrong = compute_in(digits)(ops.rms_norm, None)(X, np.ones(8), 1e-5, xp=np)  # type: ignore[arg-type]
    assert type(wrong) is np.ndarray
    assert 0.05 * error < np.max(np.abs(wrong - right) / np.abs(right)) < 4.0 * error
