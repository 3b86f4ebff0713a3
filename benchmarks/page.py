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
NOTES = {
    "tiny-2x5": """\
What an operation costs before it computes decides here: torch takes microseconds for each of many.
`torch.compile` makes one call of them, for seconds of compiling. JAX's time is that of calling a compiled
function, much of it waking a thread.""",
    "tiny-8x64": """\
On JAX more than half of the time is attention: without it the forward takes 0.56 ms instead of 1.26.""",
    "smollm2-prefill": """\
"matrix product" compares rates: 1.67 is 60 % of the rate of one product of two 2,048 x 2,048 matrices.
NumPy's products alone, 128 rows through each matrix, take three quarters of its prefill, at 72 % of that
rate.""",
    "smollm2-decode": """\
"matrix-vector" is one vector through each matrix, joined as the decoder joins them, by `numpy.matmul`,
`torch.mv` and a compiled chain of JAX's `matmul`. NumPy's step spends 4 ms on small operations beside the
products where nothing else fills the processor's cache, and more where the weights do. JAX's loop over
stacked blocks copies each block's weights to a buffer before it multiplies; unrolled, the step took as
long (28 ms and 27) and three to five times as long to compile.""",
    "narrow": """\
The bounds are bfloat16's own products of decode against float32's, and its matrix product. No product of
torch that was tried reads bfloat16 for one row at the rate of the memory (22 ms for 269 MB); float32 does
by oneDNN (30 ms for 538 MB).""",
    "training": """\
Gradients of the plain loss on JAX, and of the loss with kernels on torch, through `torch.func`;
transformers' module is trained by `backward`.""",
}
