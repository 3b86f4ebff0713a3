"""Judging somebody else's model: in one call, or as tests of pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tinyxp.checks import as_integer
from tinyxp.testing.judging import LawBroken, Verdict, judge
from tinyxp.testing.law_registry import select
from tinyxp.testing.subjects.base import Subject
from tinyxp.testing.subjects.foreign_model import Interface, foreign

if TYPE_CHECKING:
    import pytest


def check_model(
    function: Callable[..., Any],
    *,
    laws: str = "*",
    max_examples: int | None = None,
    **interface: Unpack[Interface],
) -> list[Verdict]:
    """Judge a decoder, known only by what it computes, by every law that applies to it.

    ``function(ids) -> logits`` takes ids (b, t): integers from 0 to ``vocab_size`` - 1, an array of ``xp`` in
    the dtype that the library indexes with (int64; int32 for JAX and MLX). b and t are 1 or more, t at most
    ``max_seq_len``. It returns logits (b, t, vocab_size): scores before any softmax, an array of any known
    library. The same ids must give the same logits, so turn dropout off.

    Further keywords, all optional:

    - ``mask=True``: the function takes ``mask=``, booleans (b, t) of ``xp``, True on real tokens. The real
      tokens of a row are contiguous, with padding before them, after them or both. Logits on padding may be
      anything. Without a mask all tokens are real.
    - ``positions=True``: it takes ``positions=``, integers (b, t) or (1, t) from 0 to max_seq_len - 1.
      Without them it counts each row's real tokens from 0.
    - ``rotary=True``: positions are rotary, so shifting all of them changes nothing.
    - ``step(ids, cache) -> (logits, cache)`` computes further columns. ``cache`` is None at first and then
      what the last step returned; ids (b, t) are the new columns, and logits (b, t, vocab_size) are theirs.
      With ``mask=True`` it takes ``mask=`` (b, t) of the new columns too. Old caches are not used again.
    - ``xp`` (default: NumPy) is the array library, named as everywhere.
    - ``dtype`` (default: "float32") is what the function computes in. It sets how far rounding may move
      logits; float64 shows small faults too.
    - ``laws`` selects by name, kind or region: ``"causality,cache"``, ``"*padding*"``.
    - ``max_examples`` limits the cases for each law; the default is that of Hypothesis's profile.
    - ``name`` is used in the report.

    Return the verdicts of the laws that apply. Raise LawBroken, an AssertionError, listing each broken law
    with its smallest counterexample and source that reproduces it; an exception of the function breaks a law
    too. Raise ValueError for arguments that contradict each other, and if no law applies.
    """
    subject = foreign(function, **interface)
    if max_examples is not None:
        max_examples = as_integer("max_examples", max_examples, low=1)
    verdicts = [judge(law, subject, max_examples=max_examples) for law in select(laws)]
    applicable = [verdict for verdict in verdicts if verdict.status != "n/a"]
    if not applicable:
        reasons = ", ".join(dict.fromkeys(verdict.reason for verdict in verdicts))
        raise ValueError(f"laws is {laws!r}, none of which applies to {subject.name}: {reasons}")
    broken = [verdict for verdict in applicable if verdict.status == "fail"]
    if broken:
        title = f"{subject.name} breaks {len(broken)} of {len(applicable)} laws"
        raise LawBroken("\n\n".join([title, *(verdict.report() for verdict in broken)]))
    return applicable


def parametrize_with_laws(subjects: Sequence[Subject], laws: str = "*") -> pytest.MarkDecorator:
    """Return a decorator that makes one pytest test for each subject and each law that applies to it::

        @parametrize_with_laws([foreign(my_model, vocab_size=50, max_seq_len=64)])
        def test_my_model(subject, law):
            law(subject)

    The test's id is ``name-law``. ``laws`` selects as in ``check_model``. Raise ValueError if no law applies
    to a subject.
    """
    import pytest

    selected = select(laws)
    cases = []
    for subject in subjects:
        applicable = [law for law in selected if not subject.lacks(law.needs)]
        if not applicable:
            raise ValueError(f"laws is {laws!r}, none of which applies to {subject.name}")
        cases += [pytest.param(subject, law, id=f"{subject.name}-{law.name}") for law in applicable]
    if not cases:
        raise ValueError("subjects is empty")
    return pytest.mark.parametrize(("subject", "law"), cases)
