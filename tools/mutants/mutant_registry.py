"""What a mutant is: a mistake, the change of source that makes it, and the laws that detect it."""

from __future__ import annotations

from dataclasses import dataclass

FAMILIES = ("gpt2", "llama", "mixed")
"""The families that mutants name; a mixed model has a squared ReLU and a bias of the head."""


@dataclass(frozen=True)
class Patch:
    """One change of one module's source."""

    module: str  # the name of a module of tinyxp
    before: str
    after: str
    count: int = 1  # how often ``before`` occurs in the source

    def apply(self, source: str) -> str:
        """Return the changed source. Raise ValueError unless ``before`` occurs in it ``count`` times."""
        occurrences = source.count(self.before)
        if occurrences != self.count:
            raise ValueError(
                f"patch of {self.module} has {self.before!r}, which its source contains {occurrences} times; "
                f"it must be {self.count}"
            )
        return source.replace(self.before, self.after)


@dataclass(frozen=True)
class Mutant:
    """A decoder that is wrong in one known way."""

    name: str
    sentence: str  # the mistake
    patches: tuple[Patch, ...]
    region: str  # the region of the laws that must detect it
    killers: tuple[str, ...]  # the laws that are expected to detect it
    families: tuple[str, ...]  # the families whose models it affects

    def __repr__(self) -> str:
        return f"<mutant {self.name}: {self.sentence}>"


MUTANTS: dict[str, Mutant] = {}
"""Every mutant by its name; importing ``tools.mutants`` fills it."""


def mutant(
    name: str,
    sentence: str,
    *patches: Patch,
    region: str,
    killers: str,
    families: str = "gpt2 llama",
) -> Mutant:
    """Register a mutant; ``killers`` and ``families`` are words separated by spaces."""
    if name in MUTANTS or not patches or not set(families.split()) <= set(FAMILIES):
        raise ValueError(
            f"mutant {name!r} is registered already, has no patch, or is of none of the families {FAMILIES}"
        )
    MUTANTS[name] = Mutant(name, sentence, patches, region, tuple(killers.split()), tuple(families.split()))
    return MUTANTS[name]
