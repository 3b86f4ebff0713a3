"""docs/faults.md has the rows of the code; its numbers are made by ``make docs``."""

from __future__ import annotations

from pathlib import Path

from .page import pair_title, title, unplanted
from .planted import PLANTED
from .test_pairs import PAIRS

TEXT = Path("docs/faults.md").read_text()
FIRST, SECOND, THIRD = TEXT.split("\n## ")


def cells(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_planted_fault_has_its_row_and_is_named_on_all_backends() -> None:
    rows = cells(FIRST)
    assert [row[:2] for row in rows] == [title(planted) for planted in PLANTED]
    for planted, row in zip(PLANTED, rows, strict=True):
        block = "" if planted.block is None else f", block {planted.block}"
        assert row[5:] == [f"{planted.key}{block}", "yes", "yes", "yes"]
    assert f"{len(PLANTED)} of {len(PLANTED)} rows are right on all three backends" in FIRST


def test_every_pair_has_its_row_and_both_are_named() -> None:
    rows = cells(SECOND)
    assert [row[:2] for row in rows] == [pair_title(pair) for pair in PAIRS]
    assert {row[-1] for row in rows} == {"yes"}
    assert f"Both are named in {len(PAIRS)} of them" in " ".join(SECOND.split())


def test_the_rows_of_the_catalogue_that_are_not_planted_are_listed() -> None:
    assert f"## {THIRD}".strip() == unplanted().strip()
