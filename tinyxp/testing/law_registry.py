"""The laws by name: how a file of laws registers them, and how a pattern selects some."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.judging import Law
from tinyxp.testing.subjects.base import Subject

KINDS = ("op", "model", "sampling", "text", "checkpoint", "training")
"""What a law may apply to."""

Check = Callable[[Any, Draw], None]

LAWS: dict[str, Law] = {}
"""Every law by its name; importing ``tinyxp.testing`` fills it."""


def law(
    sentence: str,
    *,
    of: str,
    region: str,
    source: str,
    needs: str = "",
    examples: int | None = None,
    is_reference: bool = False,
) -> Callable[[Check], Law]:
    """Return a decorator that registers a check as a law named after its function.

    ``needs`` are abilities of a subject, separated by spaces. Raise ValueError if the name is taken or ``of``
    is unknown.
    """

    def register(check: Check) -> Law:
        name = check.__name__.replace("_", "-")
        if name in LAWS or of not in KINDS:
            raise ValueError(f"law {name!r} of {of!r} is registered already, or is of none of {KINDS}")
        LAWS[name] = Law(
            name, sentence, source, of, region, frozenset(needs.split()), check, examples, is_reference
        )
        return LAWS[name]

    return register


def laws_of(of: str, region: str, source: str, needs: str = "") -> Callable[..., Callable[[Check], Law]]:
    """Return ``law`` with these defaults, for a file whose laws share them."""
    return partial(law, of=of, region=region, source=source, needs=needs)


def select(pattern: str = "*") -> list[Law]:
    """Return the laws whose name, kind or region matches a shell pattern, or one of several, comma-separated.

    Raise ValueError naming a pattern that matches none.
    """
    selected: set[str] = set()
    for part in filter(None, (p.strip() for p in pattern.split(","))):
        names = {x.name for x in LAWS.values() if _matches(x, part)}
        if not names:
            raise ValueError(f"laws is {part!r}, which matches none of the {len(LAWS)} laws")
        selected |= names
    if not selected:
        raise ValueError(f"laws is {pattern!r}, which matches none of the {len(LAWS)} laws")
    return [x for x in LAWS.values() if x.name in selected]


def _matches(law: Law, pattern: str) -> bool:
    return any(fnmatch.fnmatch(word, pattern) for word in (law.name, law.of, law.region))


def replay(law: str, example: Mapping[str, Any], subject: Subject) -> None:
    """Check one recorded case of a law on any subject, and raise what breaks it.

    Raise ValueError naming an unknown law, or a value that the law draws and ``example`` lacks.
    """
    if law not in LAWS:
        raise ValueError(f"law is {law!r}; known are {', '.join(LAWS)}")

    def recorded(name: str, strategy: st.SearchStrategy[Any]) -> Any:
        if name not in example:
            raise ValueError(f"example lacks {name!r}, which {law} draws; it has {', '.join(example)}")
        return example[name]

    with subject.active():
        LAWS[law].check(subject, Draw(recorded))
