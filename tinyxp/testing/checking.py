"""Judging somebody else's model: in one call, or as cases of pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxp.checks import as_integer
from tinyxp.testing.law import LawBroken, select
from tinyxp.testing.runner import Verdict, judge
from tinyxp.testing.subject import Subject
from tinyxp.testing.subjects import foreign

if TYPE_CHECKING:
    import pytest


def check_model(
    function: Callable[..., Any],
    *,
    vocab_size: int,
    max_seq_len: int,
    xp: Any = np,
    dtype: str = "float32",
    mask: bool = False,
    positions: bool = False,
    rotary: bool = False,
    step: Callable[..., Any] | None = None,
    laws: str = "*",
    max_examples: int | None = None,
    name: str | None = None,
) -> list[Verdict]:
    """Judges a decoder, of which nothing is known but what it computes, by every law that applies to it.

    ``function(ids) -> logits``: ids (b, t) are integers from 0 to vocab_size - 1, an array of ``xp`` in the
    dtype that the library indexes with (int64; int32 for JAX and MLX), of any b and t from 1 on, t up to
    ``max_seq_len``. logits (b, t, vocab_size) are scores before any softmax, an array of any known library.
    The same ids must give the same logits, so dropout is off.

    ``mask=True``: it also takes ``mask=``, booleans (b, t) of ``xp``, True on real tokens. The real tokens of
    a row stand in one piece, with padding before them, after them or both. Logits on padding may be anything.
    Where no mask is given all tokens are real.

    ``positions=True``: it also takes ``positions=``, integers (b, t) or (1, t) from 0 to max_seq_len - 1.
    Where none are given it counts each row's real tokens from 0. ``rotary=True``: positions are rotary, so
    that shifting all of them changes nothing.

    ``step(ids, cache) -> (logits, cache)`` computes further columns: ``cache`` is None at first and then what
    the last step returned, ids (b, t) are the new columns alone, one or more of them, and logits
    (b, t, vocab_size) are theirs. With ``mask=True`` it takes ``mask=`` (b, t) of the new columns too. Old
    caches are not used again.

    ``xp`` names the array library as everywhere; ``dtype`` is what the function computes in, and decides how
    far rounding may part logits: in float64 small faults show too. ``laws`` selects by name, kind or region:
    ``"causality,cache"``, ``"*padding*"``. Each law is tried on up to ``max_examples`` cases, by default as
    many as Hypothesis's profile says. ``name`` stands in the report.

    Returns the verdicts of the laws that apply. Raises LawBroken, an AssertionError, listing every broken law
    with its smallest counterexample and the lines that show it again; an exception of the function breaks a
    law too. Raises ValueError for arguments that contradict each other, and where no law applies.
    """
    subject = foreign(
        function,
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        xp=xp,
        dtype=dtype,
        mask=mask,
        positions=positions,
        rotary=rotary,
        step=step,
        name=name,
    )
    if max_examples is not None:
        max_examples = as_integer("max_examples", max_examples, low=1)
    verdicts = [judge(law, subject, max_examples=max_examples) for law in select(laws)]
    found = [verdict for verdict in verdicts if verdict.status != "n/a"]
    if not found:
        reasons = ", ".join(dict.fromkeys(verdict.reason for verdict in verdicts))
        raise ValueError(f"laws is {laws!r}, none of which applies to {subject.name}: {reasons}")
    broken = [verdict for verdict in found if verdict.status == "fail"]
    if broken:
        title = f"{subject.name} breaks {len(broken)} of {len(found)} laws"
        raise LawBroken("\n\n".join([title, *(verdict.report() for verdict in broken)]))
    return found


def parametrize_with_laws(subjects: Sequence[Subject], laws: str = "*") -> pytest.MarkDecorator:
    """A decorator that makes one test of pytest for each subject and each law that applies to it::

        @parametrize_with_laws([foreign(my_model, vocab_size=50, max_seq_len=64)])
        def test_my_model(subject, law):
            law(subject)

    The test's id is ``name-law``. ``laws`` selects as in ``check_model``. Raises ValueError where no law
    applies to a subject.
    """
    import pytest

    chosen = select(laws)
    cases = []
    for subject in subjects:
        fitting = [law for law in chosen if not subject.lacks(law.needs)]
        if not fitting:
            raise ValueError(f"laws is {laws!r}, none of which applies to {subject.name}")
        cases += [pytest.param(subject, law, id=f"{subject.name}-{law.name}") for law in fitting]
    if not cases:
        raise ValueError("subjects is empty")
    return pytest.mark.parametrize(("subject", "law"), cases)
