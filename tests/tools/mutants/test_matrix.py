"""The kill matrix: which law sees which wrong decoder, as it is computed and as it is printed."""

from __future__ import annotations

import json

import pytest

from tinyxp.testing import LAWS, judge
from tools import mutants
from tools.mutants import MUTANTS, kill_matrix
from tools.mutants.matrix import killers
from tools.mutants.page import as_json, markdown, text


def test_a_report_holds_source_that_breaks_the_law_again() -> None:
    verdict = judge(
        LAWS["causality"], mutants.load_subject("mask-missing"), max_examples=10, derandomize=True
    )
    assert verdict.status == "fail"
    with pytest.raises(AssertionError, match="logits before"):
        exec(verdict.snippet(), {})


def test_the_matrix_says_which_law_kills_which_mutant() -> None:
    chosen = [MUTANTS["mask-missing"], MUTANTS["mask-without-itself"], MUTANTS["loss-in-bits"]]
    laws = [LAWS["causality"], LAWS["heads-attend"], LAWS["agrees-with-the-referee"]]
    done: list[tuple[int, int]] = []
    matrix = kill_matrix(chosen, laws, max_examples=10, workers=2, show=lambda *now: done.append(now))
    found = {fate.mutant.name: fate.killers for fate in matrix.fates}
    assert found == {
        "mask-missing": ("causality", "heads-attend", "agrees-with-the-referee"),
        "mask-without-itself": ("heads-attend", "agrees-with-the-referee"),
        "loss-in-bits": (),
    }
    assert [fate.properties for fate in matrix.fates] == [
        ("causality", "heads-attend"),
        ("heads-attend",),
        (),
    ]
    assert matrix.copy == ()
    assert matrix.survivors == ("loss-in-bits",)
    assert list(matrix.totals.values()) == [3, 2, 2, 2, 2]
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]

    lines = text(matrix).splitlines()
    assert lines[0] == "causality"
    assert lines[1].split() == ["mask-missing", "causality", "and", "2", "more"]
    assert "  loss-in-bits         SURVIVES" in lines
    assert lines[-1] == "survivors of their own region's laws: loss-in-bits"
    page = markdown(matrix)
    assert "| `mask-missing` | Attention ignores the mask. | `causality` and 2 more |" in page
    assert "| `heads-attend` | attention | 2 |" in page
    record = json.loads(as_json(matrix))
    assert record["mutants"]["mask-without-itself"]["killers"] == ["heads-attend", "agrees-with-the-referee"]
    assert record["totals"]["killed by a law of their own region"] == 2


def test_scopes() -> None:
    laws = [LAWS[name] for name in ("causality", "prefix-invariance", "heads-attend")]
    assert killers(MUTANTS["mask-missing"], laws, scope="first") == ("causality",)
    assert killers(MUTANTS["mask-missing"], laws[1:], scope="first") == ("prefix-invariance",)
    assert killers(MUTANTS["mask-missing"], laws[2:], scope="first") == ()
    assert killers(MUTANTS["mask-missing"], laws, scope="region") == ("causality", "prefix-invariance")
