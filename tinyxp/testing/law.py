"""What a law is: a sentence about decoders, its source, what it needs, and the check that can break it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tinyxp.config import Config, RopeScaling

if TYPE_CHECKING:
    from tinyxp.testing.subject import Subject

T = TypeVar("T")

KINDS = ("op", "model", "sampling", "text", "checkpoint", "training")
"""What a law may apply to."""


class LawBroken(AssertionError):
    """A subject breaks a law; the message names each law, its sentence and the smallest counterexample."""


class Draw:
    """Draws a law's values by name, and remembers them: a counterexample is a dictionary of plain values."""

    def __init__(self, source: Callable[[str, st.SearchStrategy[Any]], Any]) -> None:
        self.values: dict[str, Any] = {}
        self._source = source

    def __call__(self, name: str, strategy: st.SearchStrategy[T]) -> T:
        """A value of ``strategy``, or the one that is replayed under this name."""
        value: T = self._source(name, strategy)
        self.values[name] = value
        return value


@dataclass(frozen=True)
class Law:
    """One law. Called with a subject, it raises LawBroken with the smallest counterexample it finds."""

    name: str
    sentence: str
    source: str  # where the law, or what it judges, is written down
    of: str  # one of KINDS
    region: str  # the part of a decoder that breaks it
    needs: frozenset[str]  # abilities of a subject
    check: Callable[[Any, Draw], None]
    examples: int | None  # at most so many, for laws that are dear or that nothing is drawn for
    is_reference: bool  # whether it compares with another implementation's numbers

    def __call__(self, subject: Subject, *, max_examples: int | None = None) -> None:
        """Raises LawBroken where ``subject`` breaks this law in up to ``max_examples`` (Hypothesis's own)."""
        from tinyxp.testing.runner import judge

        verdict = judge(self, subject, max_examples=max_examples)
        if verdict.status == "fail":
            raise LawBroken(verdict.report())

    def __repr__(self) -> str:
        return f"<law {self.name}: {self.sentence}>"


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
) -> Callable[[Callable[[Any, Draw], None]], Law]:
    """Registers a check under its function's name; ``needs`` are words separated by spaces."""

    def register(check: Callable[[Any, Draw], None]) -> Law:
        name = check.__name__.replace("_", "-")
        if name in LAWS or of not in KINDS:
            raise ValueError(f"law {name!r} of {of!r} is there already, or is of none of {KINDS}")
        LAWS[name] = Law(
            name, sentence, source, of, region, frozenset(needs.split()), check, examples, is_reference
        )
        return LAWS[name]

    return register


def select(pattern: str = "*") -> list[Law]:
    """The laws whose name, kind or region fits a pattern of the shell's kind, or one of several after commas.

    Raises ValueError naming a pattern that fits none.
    """
    found: dict[str, Law] = {}
    for part in filter(None, (p.strip() for p in pattern.split(","))):
        fits = [x for x in LAWS.values() if any(fnmatch.fnmatch(w, part) for w in (x.name, x.of, x.region))]
        if not fits:
            raise ValueError(f"laws is {part!r}, which fits none of the {len(LAWS)} laws")
        found |= {x.name: x for x in fits}
    if not found:
        raise ValueError(f"laws is {pattern!r}, which fits none of the {len(LAWS)} laws")
    return [x for x in LAWS.values() if x.name in found]


def show(value: Any) -> str:
    """Python source of a drawn value, as short as it can be."""
    if isinstance(value, Config):
        plain = {**vars(Config()), "head_dim": value.d_model / value.n_heads}  # what it is if not given
        changed = {name: x for name, x in vars(value).items() if x != plain[name]}
        return f"Config({', '.join(f'{name}={show(x)}' for name, x in changed.items())})"
    if isinstance(value, RopeScaling):
        return show(vars(value))
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r}, {value.dtype.name!r})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {show(v)}" for k, v in value.items()) + "}"
    return repr(value)
