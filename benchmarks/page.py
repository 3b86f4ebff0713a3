"""The page of results, and the table of one comparison."""

from __future__ import annotations

import statistics
from typing import Any


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two ratios compare the same."""
    return bool(a["of"] == b["of"] and a["against"] == b["against"])


def table(name: str, results: list[dict[str, Any]]) -> str:
    """Markdown: the ratios of every run beside the goal, and the milliseconds of the last."""
    runs = [f"run {i + 1}" for i in range(len(results))]
    lines = [f"### {name}", "", _row(["ratio of times", *runs, "median", "goal", ""])]
    lines.append(_row(["---"] * (len(runs) + 4)))
    for i, ratio in enumerate(results[0]["ratios"]):
        values = [found["ratios"][i]["ratio"] for found in results]
        median, goal = statistics.median(values), ratio["goal"]
        verdict = "" if goal is None else "reached" if median <= goal else "**missed**"
        cells = [*(f"{value:.2f}" for value in [*values, median]), "" if goal is None else f"{goal:.2f}"]
        lines.append(_row([f"{ratio['of']} / {ratio['against']}", *cells, verdict]))
    lines += ["", _row(["ms, run by run", *runs, "quartiles of the last"]), _row(["---"] * (len(runs) + 2))]
    for function, (_, low, high) in results[-1]["ms"].items():
        medians = [f"{found['ms'][function][0]:.3g}" for found in results]
        lines.append(_row([function, *medians, f"{low:.3g} to {high:.3g}"]))
    return "\n".join([*lines, ""])


def page(kept: dict[str, Any]) -> str:
    """The whole page."""
    lines = ["# Benchmarks", "", INTRODUCTION, "", *_machine(kept["machine"]), ""]
    for name, results in kept["contests"].items():
        lines += [table(name, results), NOTES.get(name, ""), ""]
    for name, rows in kept.get("singles", {}).items():
        lines += [f"### {SINGLES[name]}", "", _row(list(rows[0])), _row(["---"] * len(rows[0]))]
        lines += [_row([_cell(value) for value in row.values()]) for row in rows]
        lines.append("")
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip() + "\n"


def _machine(facts: dict[str, Any]) -> list[str]:
    """The machine and the versions, as a block."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return ["```", f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}", versions, "```"]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


INTRODUCTION = """\
Written by `python -m benchmarks --record`. All functions of a comparison run by turns in one process, so
that a machine that slows down slows them all alike; each value is the median of the rounds of one run, and a
ratio is one of medians: below 1, the first is faster. `make bench-check` compares the ratios with those on
record."""

SINGLES = {
    "memory": "Peak memory of prefill and steps of SmolLM2-135M, bytes beyond the library itself",
    "compilations": "What XLA compiles for the first prompt and for 100 lengths of prompt, and seconds",
    "first_token": "Seconds from the start of `tinyxp generate` to the first character, SmolLM2-135M GGUF",
    "accuracy": "What narrow weights cost: mean KL from float32 in nats, and share of equal likeliest tokens",
}
NOTES: dict[str, str] = {}
