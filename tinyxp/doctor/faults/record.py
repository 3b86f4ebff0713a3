"""What a fault is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tinyxp.config import Config
from tinyxp.doctor.choices import F
from tinyxp.doctor.variant import Variant


class Fault(NamedTuple):
    """One way to be wrong."""

    key: str
    says: str  # a sentence whose subject is the side at fault: "{it} rotates neighbouring pairs"
    fix: str
    shows: tuple[str, ...]  # the kinds of points that it changes by itself
    plant: Callable[[Variant], Variant]
    likely: int = 1  # of two that explain the same, the one with the smaller number
    coarse: str = ""  # the dtype that it computes in, whose rounding cannot be imitated exactly
    everywhere: bool = True  # whether it is made in code, which all blocks share
    sets: frozenset[str] = frozenset()  # what another fault cannot set too


Maker = Callable[[Config], Iterator[Fault]]


def choosing(
    key: str, says: str, fix: str, shows: tuple[str, ...], likely: int = 1, coarse: str = "", **values: Any
) -> Fault:
    """The fault that is a choice: the fields of ``Choices`` that it sets."""

    def plant(v: Variant) -> Variant:
        return v.edited(lambda c: replace(c, **values))

    return Fault(key, says, fix, shows, plant, likely, coarse, sets=frozenset(values))


def changing(
    key: str,
    says: str,
    fix: str,
    shows: tuple[str, ...],
    change: Callable[[str, F, Variant], F],
    likely: int = 1,
) -> Fault:
    """The fault that changes parameters as they are loaded."""
    return Fault(key, says, fix, shows, lambda v: v.edited(lambda c: c, change), likely, everywhere=False)


def within(name: str) -> str:
    """A parameter's name within its block: ``attn.q.weight`` of ``blocks.3.attn.q.weight``."""
    return name.split(".", 2)[2] if name.startswith("blocks.") else name
