"""The laws of operations and models on JAX's kernels.

``make test-all`` judges them on every config of the pool, ``make test`` on two.
"""

from __future__ import annotations

import pytest

from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

from .shapes import POOLED, of_two_families

pytest.importorskip("jax")

JAX = subject("jax+kernels", pooled=POOLED)


@parametrize_with_laws([of_two_families(JAX)], "op,model")
def test_law(subject: Subject, law: Law) -> None:
    law(subject)


@pytest.mark.rare
@parametrize_with_laws([JAX], "model")
def test_law_on_every_config(subject: Subject, law: Law) -> None:
    law(subject)
