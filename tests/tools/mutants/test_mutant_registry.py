"""The registry of mutants: many, each different, and no name twice."""

from __future__ import annotations

import pytest

from tools import mutants
from tools.mutants import MUTANTS, Patch, sources


def test_there_are_many_and_each_is_its_own() -> None:
    assert len(MUTANTS) >= 200
    assert all(name == mutant.name for name, mutant in MUTANTS.items())
    assert len({mutant.sentence for mutant in MUTANTS.values()}) == len(MUTANTS)
    assert len({tuple(sources(mutant.patches).values()) for mutant in MUTANTS.values()}) == len(MUTANTS)


def test_double_names_and_unknown_families_are_rejected() -> None:
    patch = Patch("ops", "x", "y")
    with pytest.raises(ValueError, match="is registered already"):
        mutants.mutant("mask-missing", "Again.", patch, region="norm", killers="")
    with pytest.raises(ValueError, match="is of none of the families"):
        mutants.mutant("new", "New.", patch, region="norm", killers="", families="bert")
    assert "new" not in MUTANTS
