"""The page of mutants is that of the code: the mutants, the laws, and no survivor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tinyxp.testing import LAWS, subject
from tools.mutants import MUTANTS
from tools.mutants.matrix import UNAFFECTED

PAGE = (Path(__file__).parents[3] / "docs" / "mutants.md").read_text(encoding="utf-8")


def test_it_lists_every_mutant_with_its_sentence() -> None:
    rows = dict(
        re.findall(r"^\| `(\S+)` \| (.*) \| .* \|$", PAGE.partition("## What each law kills")[0], re.M)
    )
    assert rows.keys() == MUTANTS.keys()
    for name, sentence in rows.items():
        assert sentence.replace("\\", "") == MUTANTS[name].sentence


def test_every_mutant_is_killed_by_a_law_of_its_region() -> None:
    totals = {what: int(count) for count, what in re.findall(r"^- (\d+) (.*)$", PAGE, re.M)}
    assert totals["mutants"] == len(MUTANTS)
    assert totals["killed by a law of their own region"] == len(MUTANTS)
    assert "SURVIVES" not in PAGE


def kills() -> dict[str, int]:
    rows = re.findall(r"^\| `(\S+)` \| \S+ \| (\d+) \|$", PAGE.partition("## What each law kills")[2], re.M)
    return {name: int(count) for name, count in rows}


def test_it_lists_every_law_that_judges_what_mutants_change() -> None:
    assert kills().keys() == {law.name for law in LAWS.values() if law.region not in UNAFFECTED}


@pytest.mark.parametrize("name", [law.name for law in LAWS.values() if law.region not in UNAFFECTED])
def test_a_law_that_applies_to_numpy_kills_a_mutant(name: str) -> None:
    assert kills()[name] > 0 or subject("numpy").lacks(LAWS[name].needs)
