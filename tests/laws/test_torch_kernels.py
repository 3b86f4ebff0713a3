"""The laws of operations and models on PyTorch's kernels."""

from __future__ import annotations

import pytest

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED

pytest.importorskip("torch")


@parametrize_with_laws([subject("torch+kernels", pooled=POOLED)], "op,model")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
