"""tinyxp's decoder on a backend as a subject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference import libraries
from tinyxp import Config
from tinyxp.testing import LAWS, Draw, judge, subject

DRAWN: dict[str, Any] = {
    "config": Config(vocab_size=3, d_model=6, n_heads=3, n_kv_heads=1, d_ff=5),
    "seed": 3,
}


def test_abilities_follow_from_the_backend() -> None:
    pure, fast = subject("numpy"), subject("numpy+kernels")
    assert not pure.abilities & {"gradients", "compiler", "devices"}
    assert pure.abilities - fast.abilities == {"kernels", "values", "trace"}
    assert pure.dtype == "float64"
    assert subject("numpy", dtype="float32").dtype == "float32"


@pytest.mark.parametrize("library", libraries("torch", "strict", "jax"))
def test_a_model_is_drawn_once_for_all_backends(library: str) -> None:
    drawn = Draw(lambda name, strategy: DRAWN[name])
    expected = subject("numpy").model(drawn).forward([[1, 2, 0]])
    there = subject(library)
    with there.active():
        there.close(there.model(drawn).forward(np.array([[1, 2, 0]])), expected, "logits")


def test_names_of_subjects() -> None:
    for wrong in ("numpy+x", "strict+kernels", "numpy+", "+kernels", "no_such_module", "json"):
        with pytest.raises(ValueError, match=r"^(subject|backend) is '"):
            subject(wrong)
    assert subject("numpy").recipe == "subject('numpy')"
    assert (
        subject("numpy", dtype="float32", pooled=True).recipe
        == "subject('numpy', dtype='float32', pooled=True)"
    )
    assert judge(LAWS["causality"], subject("numpy+kernels"), max_examples=2).status == "pass"
