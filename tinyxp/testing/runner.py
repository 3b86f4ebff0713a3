"""Judges a subject by a law: draws examples, shrinks what breaks it, and says how to see it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from tinyxp.testing.law import LAWS, Draw, Law, show
from tinyxp.testing.subject import Subject

WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
SHRINKING = (*WITHOUT_SHRINKING, Phase.target, Phase.shrink)  # not explain, which traces each line: slow


@dataclass(frozen=True)
class Verdict:
    """What came of one law and one subject."""

    law: Law
    subject: Subject
    status: str  # "pass", "fail" or "n/a"
    reason: str = ""  # how it failed, or why it does not apply
    example: Mapping[str, Any] | None = None  # the smallest counterexample

    def report(self) -> str:
        """The law, how it was broken, and five lines that show it again."""
        lines = [f"{self.law.name}, by {self.subject.name}: {self.law.sentence}", f"  {self.reason}"]
        if self.example is not None:
            lines += ["  To see it again:", *(f"    {line}" for line in self.snippet().splitlines())]
        return "\n".join(lines)

    def snippet(self) -> str:
        """Source that breaks the law again, on this subject or any other; your model is its ``function``."""
        arguments = {} if self.example is None else self.example
        maker = self.subject.recipe.partition("(")[0].partition(".")[0]
        return "\n".join(
            [
                "import numpy as np",
                "from tinyxp import Config",
                f"from tinyxp.testing import replay, {maker}",
                f"example = {show(dict(arguments))}",
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
    """Runs a law on up to ``max_examples`` drawn cases (of Hypothesis's active profile, if not given).

    An exception that the subject raises on a valid case breaks the law too.
    """
    missing = subject.lacks(law.needs)
    if missing:
        return Verdict(law, subject, "n/a", missing)
    profile = hypothesis.settings()
    wanted = profile.max_examples if max_examples is None else max_examples
    last: list[tuple[Mapping[str, Any], Exception]] = []

    @hypothesis.settings(
        profile,
        max_examples=wanted if law.examples is None else min(wanted, law.examples),
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
            last.append((draw.values, error))
            raise

    try:
        with subject.active():
            run()
    except Exception as error:
        if not last:
            raise
        example, broken = last[-1]
        flaky = "" if error is broken or type(error) is type(broken) else f" ({type(error).__name__})"
        return Verdict(law, subject, "fail", describe(broken) + flaky, example)
    return Verdict(law, subject, "pass")


def describe(error: Exception) -> str:
    """One line of what went wrong."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}"


def replay(law: str, example: Mapping[str, Any], subject: Subject) -> None:
    """Checks one case of a law, drawn before: raises what broke it, on any subject.

    Raises ValueError naming an unknown law, or a value that the law draws and ``example`` lacks.
    """
    if law not in LAWS:
        raise ValueError(f"law is {law!r}; known are {', '.join(LAWS)}")

    def known(name: str, strategy: st.SearchStrategy[Any]) -> Any:
        if name not in example:
            raise ValueError(f"example lacks {name!r}, which {law} draws; it has {', '.join(example)}")
        return example[name]

    with subject.active():
        LAWS[law].check(subject, Draw(known))
