"""What faults of norms compute, by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.doctor.models import GPT2_SMALL, LLAMA_SMALL
from tests.doctor.variants import fault_of, right_variant, run

EPS = 1e-5
Formula = Callable[[Any, Any, Any, int], Any]
RMS: dict[str, Formula] = {
    "eps 0.001": lambda x, m, w, d: x / np.sqrt(m + 1e-3) * w,
    "eps 0": lambda x, m, w, d: x / np.sqrt(m) * w,
    "eps outside the root": lambda x, m, w, d: x / (np.sqrt(m) + EPS) * w,
    "norm without a root": lambda x, m, w, d: x / (m + EPS) * w,
    "sum for mean in the norm": lambda x, m, w, d: x / np.sqrt(m * d + EPS) * w,
    "variance with n - 1": lambda x, m, w, d: x / np.sqrt(m * d / (d - 1) + EPS) * w,
    "norm weight as 1 + w": lambda x, m, w, d: x / np.sqrt(m + EPS) * (1.0 + w),
    "norm weight as w - 1": lambda x, m, w, d: x / np.sqrt(m + EPS) * (w - 1.0),
    "norm weight ignored": lambda x, m, w, d: x / np.sqrt(m + EPS),
}


@pytest.mark.parametrize("key", RMS)
def test_rms_norm(key: str) -> None:
    v = right_variant(LLAMA_SMALL)
    points = run(v.with_faults(fault_of(LLAMA_SMALL, key)))
    x, w = points["embed"], v.read("blocks.0.attn_norm.weight").astype(np.float64)
    expected = RMS[key](x, np.mean(x * x, axis=-1, keepdims=True), w, 32)
    np.testing.assert_allclose(points["blocks.0.attn_norm"], expected, rtol=1e-9)


@pytest.mark.parametrize("key", ["eps outside the root", "variance with n - 1", "norm without a root"])
def test_layer_norm_is_of_the_centred_values(key: str) -> None:
    v = right_variant(GPT2_SMALL)
    points = run(v.with_faults(fault_of(GPT2_SMALL, key)))
    x = points["embed"] - np.mean(points["embed"], axis=-1, keepdims=True)
    w, b = (v.read(f"blocks.0.attn_norm.{end}").astype(np.float64) for end in ("weight", "bias"))
    expected = RMS[key](x, np.mean(x * x, axis=-1, keepdims=True), w, 32) + b
    np.testing.assert_allclose(points["blocks.0.attn_norm"], expected, rtol=1e-7, atol=1e-9)


def test_another_kind_of_norm_keeps_what_it_has() -> None:
    v = right_variant(GPT2_SMALL)
    x = run(v)["embed"]
    w, b = (v.read(f"blocks.0.attn_norm.{end}").astype(np.float64) for end in ("weight", "bias"))
    rms = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS) * w
    for key, expected in (("RMSNorm for LayerNorm", rms + b), ("RMSNorm without bias for LayerNorm", rms)):
        norm = run(v.with_faults(fault_of(GPT2_SMALL, key)))["blocks.0.attn_norm"]
        np.testing.assert_allclose(norm, expected, rtol=1e-9)


def test_norms_that_are_elsewhere_or_nowhere() -> None:
    v = right_variant(LLAMA_SMALL)
    bare = run(v.with_faults(fault_of(LLAMA_SMALL, "blocks without norms")))
    assert np.array_equal(bare["blocks.0.mlp_norm"], bare["blocks.0.attn_residual"])
    assert np.array_equal(bare["blocks.1.attn_norm"], bare["blocks.0.residual"])
    assert not np.array_equal(bare["final_norm"], bare["blocks.1.residual"])
    post = run(v.with_faults(fault_of(LLAMA_SMALL, "norm after, not before")))
    np.testing.assert_allclose(
        post["blocks.0.residual"], post["blocks.0.attn_norm"] + post["blocks.0.mlp.out"], rtol=1e-12
    )
    missing = run(v.with_faults(fault_of(LLAMA_SMALL, "final norm missing")))
    assert np.array_equal(missing["final_norm"], missing["blocks.1.residual"])
