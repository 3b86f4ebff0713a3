"""The mutants of one file of the catalogue: each is wrong as it says, and laws of its region detect it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from tests.tools.mutants.models import CONFIGS, HIDDEN, WHOLE, expected, results
from tinyxp.testing import LAWS
from tools.mutants import MUTANTS, load, sources
from tools.mutants.loading import COPIED
from tools.mutants.matrix import killers


def judge_mutants_of(file: str) -> tuple[Callable[[str], None], ...]:
    """Return the tests of every mutant that a file of the catalogue registers."""
    spec = find_spec(f"tools.mutants.catalogue.{file}")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    of_file = pytest.mark.parametrize("name", [name for name in MUTANTS if f'    "{name}",' in source])
    return tuple(of_file(copy_function(test)) for test in TESTS)


def copy_function(test: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function of the same code with marks of its own, since marks are kept by the function."""
    copied = FunctionType(test.__code__, test.__globals__, test.__name__)
    copied.__dict__.update({name: list(marks) for name, marks in test.__dict__.items()})
    return copied


def patches_fit(name: str) -> None:
    """Each patch changes the module that it names, and no other changes."""
    mutant, unchanged = MUTANTS[name], sources()
    changed = sources(mutant.patches)
    for patch in mutant.patches:
        assert unchanged[patch.module].count(patch.before) == patch.count
    differing = {module for module in COPIED if changed[module] != unchanged[module]}
    assert differing == {patch.module for patch in mutant.patches}


def expected_laws_exist(name: str) -> None:
    """One of the expected laws is of the mutant's region."""
    mutant = MUTANTS[name]
    assert set(mutant.killers) <= set(LAWS)
    assert any(LAWS[killer].region == mutant.region for killer in mutant.killers)


def an_expected_law_kills(name: str) -> None:
    """An expected law of the mutant's own region detects it."""
    mutant = MUTANTS[name]
    assert killers(mutant, [LAWS[killer] for killer in mutant.killers], scope="first")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # mutants divide by 0 and overflow
def harms_its_families(name: str) -> None:
    """It changes the results of the families that it names, and of no other."""
    mutant, modules = MUTANTS[name], load(MUTANTS[name])
    for family in CONFIGS:
        if family == "mixed" and family not in mutant.families:
            continue  # it shares choices with both of the others
        pairs = zip(results(modules, family), expected(family), strict=True)
        if family not in mutant.families:
            for found, unchanged in pairs:
                np.testing.assert_allclose(found, unchanged, rtol=1e-9, atol=1e-9)
        elif mutant.region in WHOLE and name not in HIDDEN:
            assert not all(np.allclose(found, unchanged, rtol=1e-9, atol=1e-9) for found, unchanged in pairs)


TESTS = (patches_fit, expected_laws_exist, an_expected_law_kills, harms_its_families)
