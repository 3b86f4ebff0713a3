"""A law, and how it judges a subject: draw cases, shrink a counterexample, report how to reproduce it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from tinyxp.testing.draws import Draw, as_source
from tinyxp.testing.subjects.base import Subject

WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
SHRINKING = (
    *WITHOUT_SHRINKING,
    Phase.target,
    Phase.shrink,
)  # without explain, which is slow: it traces lines


class LawBroken(AssertionError):
    """A subject breaks a law; the message gives each law, its sentence and the smallest counterexample."""


@dataclass(frozen=True)
class Law:
    """One law. Call it with a subject to judge it: it raises LawBroken with the smallest counterexample."""

    name: str
    sentence: str
    source: str  # where the law, or what it judges, is documented
    of: str  # what it applies to: one of law_registry.KINDS
    region: str  # the part of a decoder that it covers
    needs: frozenset[str]  # abilities of a subject
    check: Callable[[Any, Draw], None]
    examples: int | None  # an upper limit, for laws that are expensive or draw nothing
    is_reference: bool  # whether it compares with another implementation's numbers

    def __call__(self, subject: Subject, *, max_examples: int | None = None) -> None:
        """Raise LawBroken if ``subject`` breaks this law in one of up to ``max_examples`` cases.

        The default number of cases is that of Hypothesis's active profile.
        """
        verdict = judge(self, subject, max_examples=max_examples)
        if verdict.status == "fail":
            raise LawBroken(verdict.report())

    def __repr__(self) -> str:
        return f"<law {self.name}: {self.sentence}>"


@dataclass(frozen=True)
class Verdict:
    """The result of judging one subject by one law."""

    law: Law
    subject: Subject
    status: str  # "pass", "fail" or "n/a"
    reason: str = ""  # how it failed, or why it does not apply
    example: Mapping[str, Any] | None = None  # the smallest counterexample

    def report(self) -> str:
        """Return the law, how it was broken, and the source that reproduces it."""
        lines = [f"{self.law.name}, by {self.subject.name}: {self.law.sentence}", f"  {self.reason}"]
        if self.example is not None:
            lines += ["  To reproduce:", *(f"    {line}" for line in self.snippet().splitlines())]
        return "\n".join(lines)

    def snippet(self) -> str:
        """Return source that breaks the law again on this subject; a foreign model is its ``function``."""
        example = {} if self.example is None else self.example
        name, module = self.subject.recipe.partition("(")[0].partition(".")[0], self.subject.recipe_module
        imports = (
            [f"from tinyxp.testing import replay, {name}"]
            if module == "tinyxp.testing"
            else ["from tinyxp.testing import replay", f"from {module} import {name}"]
        )
        return "\n".join(
            [
                "import numpy as np",
                "from tinyxp import Config",
                *imports,
                f"example = {as_source(dict(example))}",
                f"replay({self.law.name!r}, example, {self.subject.recipe})",
            ]
        )


def judge(
    law: Law,
    subject: Subject,
    *,
    max_examples: int | None = None,
    derandomize: bool | None = None,
    shrink: bool = True,
) -> Verdict:
    """Judge a subject by a law on up to ``max_examples`` drawn cases (default: Hypothesis's active profile).

    A subject that raises an exception on a valid case breaks the law too.
    """
    if reason := subject.lacks(law.needs):
        return Verdict(law, subject, "n/a", reason)
    profile = hypothesis.settings()
    limit = profile.max_examples if max_examples is None else max_examples
    failures: list[tuple[Mapping[str, Any], Exception]] = []

    @hypothesis.settings(
        profile,
        max_examples=limit if law.examples is None else min(limit, law.examples),
        derandomize=profile.derandomize if derandomize is None else derandomize,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=SHRINKING if shrink else WITHOUT_SHRINKING,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(data=st.data())
    def run(data: st.DataObject) -> None:
        draw = Draw(lambda name, strategy: data.draw(strategy))
        try:
            law.check(subject, draw)
        except UnsatisfiedAssumption:
            raise
        except Exception as error:
            failures.append((draw.values, error))
            raise

    try:
        with subject.active():
            run()
    except Exception as error:
        if not failures:
            raise
        example, failure = failures[-1]
        flaky = "" if error is failure or type(error) is type(failure) else f" ({type(error).__name__})"
        return Verdict(law, subject, "fail", describe(failure) + flaky, example)
    return Verdict(law, subject, "pass")


def describe(error: Exception) -> str:
    """Return an error's message on one line, with its type unless it is an AssertionError."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}"
