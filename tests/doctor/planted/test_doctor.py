"""For every planted fault: the first point is the right one, the verdict is, and the first cause is named."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from tests.reference import libraries
from tinyxp.doctor import diagnose
from tinyxp.doctor.verdicts import Verdict

from .cases import mask_of, sides
from .causes import is_named
from .planted import IDS, PLANTED, Planted

HIDDEN = ("head not tied", "softmax in bfloat16", "softmax in float16", "norm in bfloat16")
"""Faults that logits alone may not show."""
DIGITS = ("softmax in", "norm in", "products in", "RoPE", "other weights", "head not tied")
"""What else few digits, or a head of random numbers, may look like."""
SAME = {
    "neighbour pairing": "q and k rows un-permuted twice",
    "gate and up swapped": "mlp.gate and mlp.up exchanged",
}
"""Faults that no logits can tell apart."""


@pytest.mark.parametrize("backend", libraries("numpy", "torch", "jax"))
@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_fault_is_found_and_named(planted: Planted, backend: str, tmp_path: Path) -> None:
    a, b = sides(planted, backend, tmp_path)
    found = diagnose(a, b, IDS, mask=mask_of(planted))
    first = found.comparison.first
    assert first is not None
    assert fnmatch.fnmatchcase(first.point, planted.first)
    assert first.verdict in (Verdict.FAULT, Verdict.SHAPE)
    assert first.at_fault == "B"
    assert found.comparison.matters is not planted.logits_silent
    assert is_named(planted, found.causes[0]), found.causes[0].keys
    assert [cause.keys for cause in found.causes[1:]] == []
    if planted.how == "file" and not planted.key.startswith("layer "):
        assert found.proof or planted.key in ("8 heads for 4", "head not tied")


@pytest.mark.parametrize(
    "planted",
    [p for p in PLANTED if p.how != "file" and not p.logits_silent],
    ids=str,
)
def test_logits_alone_name_most(planted: Planted, tmp_path: Path) -> None:
    a, b = sides(planted, "numpy", tmp_path, logits=True)
    found = diagnose(a, b, IDS, mask=mask_of(planted))
    cause = found.causes[0]
    names = {*cause.keys, *cause.alike}
    if planted.key in HIDDEN:
        assert cause.confidence in ("likely", "unknown")
        assert not cause.keys or is_named(planted, cause) or cause.keys[0].startswith(DIGITS)
    elif planted.name == "mask inverted" and planted.how == "torch":  # every logit is NaN
        assert names >= {"mask inverted", "mask off by one"}
    else:
        assert is_named(planted, cause) or cause.keys == (SAME.get(planted.key),)
