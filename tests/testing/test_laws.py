"""Every law, on every first-class backend, and on the kernels that backends bring.

The ``ci`` profile keeps to the pool of shapes where a new one is compiled; the ``long`` one draws them.
"""

from __future__ import annotations

import os

import tinyxp
from tinyxp.testing import Law, Subject, parametrize_with_laws, subject

INSTALLED = [name for name, version in tinyxp.available_backends().items() if version is not None]
FREE = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SUBJECTS = [
    subject(name, pooled=False if FREE else None)
    for name in ("numpy", "torch", "jax", "strict", "torch+kernels")
    if name.partition("+")[0] in INSTALLED
]


@parametrize_with_laws(SUBJECTS)
def test_law(subject: Subject, law: Law) -> None:
    law(subject)
