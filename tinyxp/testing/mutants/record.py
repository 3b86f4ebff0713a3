"""What a mutant is: what a person did wrong, the change of source that does it, and who sees it."""

from __future__ import annotations

from dataclasses import dataclass

FAMILIES = ("gpt2", "llama")


@dataclass(frozen=True)
class Patch:
    """One change of one module's source."""

    module: str  # the name of a module of tinyxp
    before: str
    after: str
    count: int = 1  # how often ``before`` stands in the source

    def apply(self, source: str) -> str:
        """The changed source. Raises ValueError where ``before`` does not stand in it ``count`` times."""
        found = source.count(self.before)
        if found != self.count:
            raise ValueError(
                f"patch of {self.module} has {self.before!r}, which stands in its source {found} times; "
                f"it must be {self.count}"
            )
        return source.replace(self.before, self.after)


@dataclass(frozen=True)
class Mutant:
    """A decoder that is wrong in one known way."""

    name: str
    sentence: str  # what a person did wrong
    patches: tuple[Patch, ...]
    region: str  # the region of the laws that must see it
    killers: tuple[str, ...]  # the laws that are expected to see it
    families: tuple[str, ...]  # the families whose models it harms

    def __repr__(self) -> str:
        return f"<mutant {self.name}: {self.sentence}>"


MUTANTS: dict[str, Mutant] = {}
"""Every mutant by its name; importing ``tinyxp.testing.mutants`` fills it."""


def mutant(
    name: str,
    sentence: str,
    *patches: Patch,
    region: str,
    killers: str,
    families: str = "gpt2 llama",
) -> Mutant:
    """Registers a mutant; ``killers`` and ``families`` are words separated by spaces."""
    if name in MUTANTS or not patches or not set(families.split()) <= set(FAMILIES):
        raise ValueError(f"mutant {name!r} is there already, changes nothing, or is of none of {FAMILIES}")
    found = Mutant(name, sentence, patches, region, tuple(killers.split()), tuple(families.split()))
    MUTANTS[name] = found
    return found
