"""Every law, on NumPy."""

from __future__ import annotations

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED


@parametrize_with_laws([subject("numpy", pooled=POOLED)])
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
