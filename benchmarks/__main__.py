"""``python -m benchmarks``: runs the comparisons, and writes, or checks, what is on record."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import click

from tinyxp.bench.machine import machine

from . import page, singles
from .contest import result
from .contests import CONTESTS

RECORD = Path(__file__).parent / "recorded.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SLOWER = 1.25
"""A ratio that exceeds the recorded one by this is reported: noise here is up to some 15 %."""


@click.command()
@click.argument("names", nargs=-1)
@click.option("--runs", default=3, show_default=True, help="Runs of each comparison, one after another.")
@click.option("--repeats", default=7, show_default=True, help="Rounds of each run.")
@click.option("--record", is_flag=True, help="Keep the results, and write the page in docs.")
@click.option("--check", is_flag=True, help="Exit 1 where a ratio is a quarter above the recorded one.")
def main(names: tuple[str, ...], runs: int, repeats: int, record: bool, check: bool) -> None:
    """Compare with peers and with the machine's limits: NAMES of comparisons, or all of them."""
    unknown = sorted(set(names) - set(CONTESTS))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}; known are {', '.join(CONTESTS)}")
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if check and not recorded:
        raise click.UsageError(f"{RECORD} is not there to compare with; --record makes it")
    found = {name: [] for name in names or CONTESTS}
    for run in range(runs):
        for name in found:
            click.echo(f"run {run + 1} of {runs}: {name}", err=True)
            found[name].append(result(CONTESTS[name](), repeats))
    for name, results in found.items():
        click.echo(page.table(name, results))
    if check:
        sys.exit(_check(found, recorded["contests"]))
    if record:
        contests = recorded.get("contests", {}) | found
        kept = recorded | {"contests": contests, "machine": machine(("numpy", "torch", "jax"), None)}
        if not names:
            kept["singles"] = _singles()
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")
        PAGE.write_text(page.page(kept))


def _singles() -> dict[str, Any]:
    gguf, text = singles.environment()
    found: dict[str, Any] = {"memory": singles.memories(), "compilations": singles.compilations()}
    if gguf is not None:
        found["first_token"] = singles.first_token(gguf)
    if gguf is not None and text is not None:
        found["accuracy"] = singles.accuracy(gguf, text)
    return found


def _check(found: dict[str, list[dict[str, Any]]], recorded: dict[str, list[dict[str, Any]]]) -> int:
    """1 where the median of a ratio exceeds the recorded one's by ``SLOWER``."""
    slower = 0
    for name, results in found.items():
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
