"""The laws of operations and models on NumPy's kernels."""

from __future__ import annotations

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED


@parametrize_with_laws([subject("numpy+kernels", pooled=POOLED)], "op,model")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
