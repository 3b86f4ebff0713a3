"""What a page says about the sides of a comparison, their input, and what judges them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tests.reference import drawn
from tinyxp.doctor import Comparison, compare
from tinyxp.doctor.distance import RMS_FACTOR, WORST_FACTOR
from tinyxp.html.diff_sides import SHOWN_IDS, side_section

from .comparisons import LLAMA, change_trace, different, without_reference
from .reading import Outline, text


def tables(comparison: Comparison) -> list[list[list[str]]]:
    return Outline(side_section(comparison, str).body).tables


def facts(comparison: Comparison) -> dict[str, str]:
    body = side_section(comparison, str).body
    return {name: text(fact) for name, fact in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", body)}


def test_each_verdict_is_explained_and_counted() -> None:
    comparison = different()
    _, verdicts = tables(comparison)
    carried = sum(row.verdict == "carried" for row in comparison.rows)
    assert ["carried", "wrong only because its inputs are wrong", str(carried)] in verdicts
    assert ["fault", "wrong: this operation adds more error than rounding explains", "1"] in verdicts
    assert sum(int(row[2]) for row in verdicts[1:]) == len(comparison.rows)


def test_the_sides_have_their_names_dtypes_and_roles() -> None:
    comparison = different()
    sides, _ = tables(comparison)
    assert sides == [
        ["side", "name", "dtype", "role"],
        ["A", comparison.a.name, "float32", "trusted"],
        ["B", comparison.b.name, "float32", "under test"],
    ]


def test_a_is_under_test_if_only_b_has_weights() -> None:
    port = change_trace(lambda p: p["logits"].__imul__(np.float32(2)))
    sides, _ = tables(compare(port, drawn(LLAMA), [[1, 2]]))
    assert [row[-1] for row in sides[1:]] == ["under test", "trusted"]


def test_without_a_reference_the_sides_are_compared_with_each_other() -> None:
    comparison = without_reference()
    sides, _ = tables(comparison)
    assert [row[-1] for row in sides[1:]] == ["compared with B", "compared with A"]
    found = facts(comparison)
    assert found["ids"].startswith("2 \xd7 6 (rows, positions); the mask leaves 8 of 12 as real tokens")
    assert found["reference"] == "none: neither side has weights"
    assert "limit" not in found


def test_the_facts_are_those_of_the_comparison() -> None:
    comparison = replace(different(), notes=("one", "<two>"), generated=3)
    found = facts(comparison)
    ids = " ".join(map(str, comparison.batch.ids[0]))
    assert found["ids"] == (
        f"1 \xd7 9 (rows, positions); the last 3 of each row are A's greedy continuation{ids}"
    )
    assert found["reference"] == comparison.reference
    assert found["rounding"] == comparison.noise
    assert found["limit"].startswith(f"{RMS_FACTOR:g} times the root mean square of the rounding error or ")
    assert f" {WORST_FACTOR:g} times its largest value" in found["limit"]
    assert found["notes"] == "one<two>"
    assert "notes" not in facts(different())


def test_many_ids_are_cut() -> None:
    ids = np.arange(60).reshape(1, 60)
    comparison = compare(lambda ids: np.zeros((*ids.shape, 4)), lambda ids: np.zeros((*ids.shape, 4)), ids)
    shown = facts(comparison)["ids"]
    assert shown.endswith(f" {SHOWN_IDS - 1} ...")
