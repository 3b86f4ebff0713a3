"""``python -m tools.mutants``: what it prints, and its exit status."""

from __future__ import annotations

import json

import pytest

from tools.mutants.__main__ import judge_laws


def test_laws_that_kill_every_mutant_of_their_region_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge_laws("batch,text", 10, "json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["laws"] == ["rows-are-independent"]
    assert record["copy"] == []
    assert set(record["mutants"]) == {"batch-looked-up-in-columns"}
    assert record["mutants"]["batch-looked-up-in-columns"]["killers"] == ["rows-are-independent"]
    assert record["totals"]["killed"] == record["totals"]["mutants"] == 1


@pytest.mark.parametrize("style", ["text", "markdown"])
def test_laws_that_miss_a_mutant_of_their_region_do_not(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge_laws("taps-replace", 1, style) == 1
    printed = capsys.readouterr().out
    assert "survivors of their own region's laws: " in printed
    assert "layers-in-reverse" in printed
    assert printed.startswith("# Mutants\n" if style == "markdown" else "structure\n")


def test_laws_of_regions_without_mutants_are_refused() -> None:
    with pytest.raises(ValueError, match="laws is 'compiler'; there is no mutant in the regions of these"):
        judge_laws("compiler", 10, "text")
    with pytest.raises(ValueError, match="matches none"):
        judge_laws("nothing", 10, "text")
