"""The laws of the decoder on one array library, as pytest tests::

    TINYXP_TEST_MODULE=their.namespace pytest --pyargs tinyxp.testing.conformance --max-examples 20

The module is a backend's name or any importable namespace that conforms to the array API standard. It needs
no adapter. It is judged in float64 if it has that, or in the dtype that ``TINYXP_TEST_DTYPE`` names. Each
test's id is its law's name. ``--xfails-file`` lists laws that the library cannot keep.
"""

from __future__ import annotations

import os

import pytest

from tinyxp.plugins import TEST_MODULE
from tinyxp.testing import LAWS, Law, Subject, judge, subject

DTYPE = "TINYXP_TEST_DTYPE"
WITHOUT_ARRAYS = ("text", "checkpoint")
"""Kinds of laws that do not depend on the array library."""


def named_subject() -> Subject:
    """Return the decoder on the library that the environment names."""
    name = os.environ.get(TEST_MODULE)
    if not name:
        raise pytest.Collector.CollectError(
            f"{TEST_MODULE} is not set; it names what to test: {TEST_MODULE}=numpy pytest --pyargs {__name__}"
        )
    try:
        return subject(name, dtype=os.environ.get(DTYPE) or None)
    except (ValueError, ImportError) as error:
        raise pytest.Collector.CollectError(f"{TEST_MODULE} is {name!r}: {error}") from error


SUBJECT = named_subject()


@pytest.mark.parametrize(
    "law", [pytest.param(law, id=law.name) for law in LAWS.values() if law.of not in WITHOUT_ARRAYS]
)
def test_law(law: Law) -> None:
    """Judge one law, on the same examples in every run."""
    verdict = judge(law, SUBJECT, derandomize=True)
    if verdict.status == "n/a":
        pytest.skip(verdict.reason)
    if verdict.status == "fail":
        pytest.fail(verdict.report(), pytrace=False)
