"""The laws of operations and models on JAX's kernels."""

from __future__ import annotations

import pytest

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED

pytest.importorskip("jax")


@parametrize_with_laws([subject("jax+kernels", pooled=POOLED)], "op,model")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
