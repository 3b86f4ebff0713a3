"""The laws of one file, judged on NumPy."""

from __future__ import annotations

from collections.abc import Callable

from tests.laws.shapes import POOLED
from tinyxp.testing import LAWS, Law, Subject, parametrize_with_laws, subject


def judge_laws_of(module: str) -> Callable[[Subject, Law], None]:
    """Return a test of every law that ``tinyxp.testing.laws.<module>`` registers, on NumPy."""
    names = [law.name for law in LAWS.values() if law.check.__module__ == f"tinyxp.testing.laws.{module}"]

    @parametrize_with_laws([subject("numpy", pooled=POOLED)], ",".join(names))
    def test_law(subject: Subject, law: Law) -> None:
        law(subject)

    return test_law
