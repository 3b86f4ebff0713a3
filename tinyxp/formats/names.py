"""The names of a file's modules, as data: which modules of ours each one holds, and in what form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinyxp.formats.steps import Step


@dataclass(frozen=True)
class Module:
    """A module of a file: its name, and those of ours whose rows its weight and its bias hold."""

    name: str
    holds: tuple[str, ...]
    steps: tuple[Callable[[Any], Step], ...] = ()
    """Functions of the Config, since a step may depend on it: the number of heads, for one."""


@dataclass(frozen=True)
class Names:
    """The modules of a file, in its order."""

    top: tuple[Module, ...]
    block: tuple[Module, ...]
    block_prefix: str
    """What a block's number is put into: ``layers.{}.``."""
    last: tuple[Module, ...] = ()
    """Modules after the blocks, which no prefix of the whole model applies to."""


def name_modules(names: Mapping[str, str]) -> tuple[Module, ...]:
    """Return modules that hold one of ours each, as they are: the file's name -> ours."""
    return tuple(Module(theirs, (ours,)) for theirs, ours in names.items())
