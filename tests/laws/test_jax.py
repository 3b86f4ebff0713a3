"""The laws on JAX; those of text know no library, and are judged on NumPy.

``make test-all`` judges them on every config of the pool, ``make test`` on two.
"""

from __future__ import annotations

import pytest

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED, of_two_families

pytest.importorskip("jax")

JAX = subject("jax", pooled=POOLED)


@parametrize_with_laws([of_two_families(JAX)], "op,model,sampling,checkpoint,training")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)


@pytest.mark.rare
@parametrize_with_laws([JAX], "model,sampling,checkpoint,training")
def test_law_on_every_config(subject: Subject, law: Law) -> None:
    law(subject)
