"""``python -m benchmarks``: run the comparisons; record their results, or check them against the record."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import click

from tinyxp.bench.machine import describe_machine

from . import page, singles
from .contest import result
from .contests import CONTESTS

RECORD = Path(__file__).parent / "recorded.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SLOWER = 1.25
"""A ratio that exceeds the recorded one by this factor is reported: noise is up to about 15 %."""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--runs", default=3, show_default=True, help="Runs of each comparison, one after another.")
@click.option("--repeats", default=7, show_default=True, help="Rounds of each run.")
@click.option("--record", is_flag=True, help="Record the results, and write docs/benchmarks.md.")
@click.option("--check", is_flag=True, help="Exit with 1 if a ratio is a quarter above the recorded one.")
def main(names: tuple[str, ...], runs: int, repeats: int, record: bool, check: bool) -> None:
    """Run the comparisons NAMES, or all of them."""
    unknown = sorted(set(names) - set(CONTESTS))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}; known are {', '.join(CONTESTS)}")
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if check and not recorded:
        raise click.UsageError(f"{RECORD} does not exist; --record creates it")
    measured = {name: [] for name in names or CONTESTS}
    for run in range(runs):
        for name in measured:
            click.echo(f"run {run + 1} of {runs}: {name}", err=True)
            measured[name].append(result(CONTESTS[name](), repeats))
    for name, results in measured.items():
        click.echo(page.table(name, results))
    if check:
        sys.exit(_check(measured, recorded["contests"]))
    if record:
        contests = recorded.get("contests", {}) | measured
        record_data = recorded | {
            "contests": contests,
            "machine": describe_machine(("numpy", "torch", "jax"), None),
        }
        if not names:
            record_data["singles"] = _singles()
        RECORD.write_text(json.dumps(record_data, indent=1) + "\n")
        PAGE.write_text(page.page(record_data))


def _singles() -> dict[str, Any]:
    gguf, text = singles.environment()
    rows: dict[str, Any] = {"memory": singles.memories(), "compilations": singles.compilations()}
    if gguf is not None:
        rows["first_token"] = singles.first_token(gguf)
    if gguf is not None and text is not None:
        rows["accuracy"] = singles.accuracy(gguf, text)
    return rows


def _check(measured: dict[str, list[dict[str, Any]]], recorded: dict[str, list[dict[str, Any]]]) -> int:
    """Return 1 if the median of a ratio exceeds the recorded median by the factor ``SLOWER``, else 0."""
    slower = 0
    for name, results in measured.items():
        for i, ratio in enumerate(results[0]["ratios"]):
            now = statistics.median(r["ratios"][i]["ratio"] for r in results)
            then = [
                r["ratio"] for old in recorded.get(name, []) for r in old["ratios"] if page.same(r, ratio)
            ]
            if then and now > SLOWER * statistics.median(then):
                click.echo(
                    f"slower: {name}: {ratio['of']} / {ratio['against']} is {now:.2f}, "
                    f"recorded {statistics.median(then):.2f}"
                )
                slower = 1
    return slower


if __name__ == "__main__":
    main()
