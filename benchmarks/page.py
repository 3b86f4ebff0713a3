"""The page of results, and the table of one comparison."""

from __future__ import annotations

import statistics
from typing import Any


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two ratios compare the same functions."""
    return bool(a["of"] == b["of"] and a["against"] == b["against"])


def table(name: str, results: list[dict[str, Any]]) -> str:
    """Return Markdown: the ratios of every run beside the goal, and the milliseconds of the last."""
    runs = [f"run {i + 1}" for i in range(len(results))]
    lines = [f"### {name}", "", _row(["ratio of times", *runs, "median", "goal", ""])]
    lines.append(_row(["---"] * (len(runs) + 4)))
    for i, ratio in enumerate(results[0]["ratios"]):
        values = [result["ratios"][i]["ratio"] for result in results]
        median, goal = statistics.median(values), ratio["goal"]
        verdict = "" if goal is None else "reached" if median <= goal else "**missed**"
        cells = [*(f"{value:.2f}" for value in [*values, median]), "" if goal is None else f"{goal:.2f}"]
        lines.append(_row([f"{ratio['of']} / {ratio['against']}", *cells, verdict]))
    lines += ["", _row(["ms, run by run", *runs, "quartiles of the last"]), _row(["---"] * (len(runs) + 2))]
    for function, (_, low, high) in results[-1]["ms"].items():
        medians = [f"{result['ms'][function][0]:.3g}" for result in results]
        lines.append(_row([function, *medians, f"{low:.3g} to {high:.3g}"]))
    return "\n".join([*lines, ""])


def page(record: dict[str, Any]) -> str:
    """Return the whole page."""
    lines = ["# Benchmarks", "", INTRODUCTION, "", *_machine(record["machine"]), ""]
    for name, results in record["contests"].items():
        lines += [table(name, results), NOTES.get(name, ""), ""]
    for name, rows in record.get("singles", {}).items():
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
Written by `python -m benchmarks --record`. All functions of a comparison are interleaved in one process, so
that a slow moment of the machine affects all of them. Each value is the median of the rounds of one run, and
a ratio compares two medians: below 1, the first is faster. `make bench-check` compares the ratios with those
on record."""

SINGLES = {
    "memory": "Peak memory of prefill and steps of SmolLM2-135M, bytes beyond the library itself",
    "compilations": "What XLA compiles for the first prompt and for 100 lengths of prompt, and seconds",
    "first_token": "Seconds from the start of `tinyxp generate` to the first character, SmolLM2-135M GGUF",
    "accuracy": "What narrow weights cost: mean KL from float32 in nats, and share of equal likeliest tokens",
}
NOTES = {
    "tiny-2x5": """\
Here the overhead of each operation decides: torch takes microseconds for each of many. `torch.compile`
turns them into one call, after seconds of compiling. JAX's time is that of calling a compiled function,
much of it waking a thread.""",
    "tiny-8x64": """\
On JAX more than half of the time is attention: without it the forward takes 0.56 ms instead of 1.26.""",
    "smollm2-prefill": """\
"matrix product" compares rates: 1.67 is 60 % of the rate of one product of two 2,048 x 2,048 matrices.
NumPy's products, 128 rows by each matrix, take three quarters of its prefill, at 72 % of that rate.""",
    "smollm2-decode": """\
"matrix-vector" is the product of each matrix with one vector, with joint projections as in the decoder, by
`numpy.matmul`, `torch.mv` and a compiled chain of JAX's `matmul`. NumPy's step spends 4 ms on small
operations in addition to the products if nothing else fills the processor's cache, and more if the weights
do. JAX's loop over stacked blocks copies each block's weights to a buffer before it multiplies. Unrolled, the
step took as long (28 ms and 27) and three to five times as long to compile.""",
    "narrow": """\
The limits are bfloat16's own products of decode compared with float32's, and its matrix product. We found
no product of torch that reads bfloat16 for one row at the rate of the memory (22 ms for 269 MB); oneDNN
does for float32 (30 ms for 538 MB).""",
    "training": """\
Gradients of the plain loss on JAX, and of the loss with kernels on torch, through `torch.func`;
transformers' module is trained by `backward`.""",
}
