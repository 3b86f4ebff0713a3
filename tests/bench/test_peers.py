"""The harness of ``benchmarks/``: ratios, the page, and the guard that compares with what is on record."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package beside tinyxp, which is not installed."""
    for library in ("jax", "torch", "transformers"):
        pytest.importorskip(library)
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("benchmarks.__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def sleeping(benchmarks: Any, long: float = 0.02) -> Any:
    """A comparison of two sleeps, one some twenty times as long as the other."""
    contest = importlib.import_module("benchmarks.contest")
    functions = {"short": lambda: time.sleep(0.001), "long": lambda: time.sleep(long)}
    return contest.Contest(
        functions, [contest.Ratio("long", "short", 2.0), contest.Ratio("short", "long", 1.0)]
    )


def test_a_ratio_is_of_the_first_over_the_second(benchmarks: Any) -> None:
    contest = importlib.import_module("benchmarks.contest")
    found = contest.result(sleeping(benchmarks), repeats=1)
    long, short = found["ms"]["long"][0], found["ms"]["short"][0]
    assert long >= 20.0 > short >= 1.0
    assert [r["ratio"] for r in found["ratios"]] == pytest.approx([long / short, short / long])


def test_many_calls_count_as_one(benchmarks: Any) -> None:
    contest = importlib.import_module("benchmarks.contest")
    calls: list[int] = []
    made = contest.Contest({"f": lambda: calls.append(1)}, [], calls=5)
    assert contest.result(made, repeats=3)["ms"]["f"][0] < 1.0
    assert len(calls) == 5 * (3 + 2)


def recorded(ratio: float) -> dict[str, Any]:
    return {
        "ms": {"a": [2.0, 1.0, 3.0], "b": [1.0, 1.0, 1.0]},
        "ratios": [{"of": "a", "against": "b", "goal": 1.5, "ratio": ratio}],
    }


def test_the_table_names_what_missed_its_goal(benchmarks: Any) -> None:
    page = importlib.import_module("benchmarks.page")
    table = page.table("name", [recorded(1.0), recorded(2.0), recorded(1.4)])
    assert "| a / b | 1.00 | 2.00 | 1.40 | 1.40 | 1.50 | reached |" in table
    assert "**missed**" in page.table("name", [recorded(1.6)])


@pytest.mark.parametrize("now, status", [(1.2, 0), (1.3, 1)])
def test_the_guard_sees_a_ratio_a_quarter_higher(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: float, status: int
) -> None:
    record = tmp_path / "recorded.json"
    record.write_text(json.dumps({"contests": {"tiny-2x5": [recorded(1.0)] * 3}}))
    monkeypatch.setattr(benchmarks, "RECORD", record)
    monkeypatch.setattr(benchmarks, "CONTESTS", {"tiny-2x5": lambda: None})
    monkeypatch.setattr(benchmarks, "result", lambda contest, repeats: recorded(now))
    done = CliRunner().invoke(benchmarks.main, ["tiny-2x5", "--check", "--runs", "1"])
    assert done.exit_code == status
    assert ("slower: tiny-2x5: a / b is 1.30, recorded 1.00" in done.output) == bool(status)


def test_an_unknown_comparison_is_named(benchmarks: Any) -> None:
    done = CliRunner().invoke(benchmarks.main, ["nothing"])
    assert done.exit_code == 2
    assert "nothing; known are tiny-2x5" in done.output


def test_the_page_is_what_the_record_says(benchmarks: Any) -> None:
    page = importlib.import_module("benchmarks.page")
    kept = json.loads(benchmarks.RECORD.read_text())
    assert benchmarks.PAGE.read_text() == page.page(kept)
