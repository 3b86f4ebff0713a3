"""The laws on JAX; those of text know no library, and are judged on NumPy."""

from __future__ import annotations

import pytest

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED

pytest.importorskip("jax")


@parametrize_with_laws([subject("jax", pooled=POOLED)], "op,model,sampling,checkpoint,training")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
