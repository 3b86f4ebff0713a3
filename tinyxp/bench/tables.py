"""The results of a bench, as text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from tinyxp.bench.plan import STEPS
from tinyxp.bench.report import digits, sentence
from tinyxp.bench.session import Bench
from tinyxp.bench.timing import Times
from tinyxp.shapes import count_parameters

Row = Sequence[str]
WIDTH = 110


def text(bench: Bench) -> str:
    """Return all tables, each under a line that says what it shows, and a sentence on the cache."""
    parts = [
        heading(bench),
        *(table(bench) for table in (prefill, decode, memory, positions, batches, heads)),
        *(f"note: {note}" for note in bench.notes),
    ]
    return "\n\n".join(parts)


def heading(bench: Bench) -> str:
    """Return the model, the machine, and how it was measured."""
    plan, machine = bench.plan, bench.machine
    weights = "random weights" if plan.is_preset else "weights read from it"
    threads = "as each library chooses" if plan.threads is None else str(plan.threads)
    if plan.threads is None and machine["OMP_NUM_THREADS"]:
        threads += f" with OMP_NUM_THREADS={machine['OMP_NUM_THREADS']}"
    repeats = f"{plan.repeats}, for decode {STEPS * plan.repeats}"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return "\n".join(
        [
            f"{plan.model}: {weights}, {count_parameters(plan.config)['total']:,} parameters",
            f"{machine['cpu']}, {machine['cores']} cores; threads {threads}; load before {machine['load']}",
            versions,
            f"medians of {repeats}; backends interleaved; quartiles in brackets",
        ]
    )


def prefill(bench: Bench) -> str:
    """Return the table of the prompt: latency, rate, and arithmetic beside its limit."""
    prompt = bench.plan.prompt_tokens
    rows = [["", "ms", "", "tokens/s", "first token ms", "compile s", "GFLOP/s", "at best", "reached"]]
    for result in bench.results:
        times, rates = result.times, result.flops_per_second
        rows.append(
            [
                result.name,
                *_spread(times["prefill"]),
                f"{prompt / times['prefill'].median:,.0f}",
                _ms(times["first_token"]),
                f"{result.compile_seconds:.2f}",
                *_reached(rates["prefill"], rates["product"]),
            ]
        )
    meanings = "compile: the first prefill and step minus the medians; at best: a large matrix product"
    return _table(f"prefill of {prompt} tokens; {meanings}", rows)


def decode(bench: Bench) -> str:
    """Return the table of one token after the prompt: latency, rate, and bytes read beside their limit."""
    rows = [["", "ms", "", "tokens/s", "GB/s", "at best", "reached"]]
    for result in bench.results:
        times, rates = result.times["step"], result.bytes_per_second
        rows.append(
            [
                result.name,
                *_spread(times),
                f"{1 / times.median:,.1f}",
                *_reached(rates["step"], rates["pass"]),
            ]
        )
    meanings = "GB/s: of the weights that it reads; at best: a vector through each matrix"
    return _table(f"decode of the token after {bench.plan.prompt_tokens}; {meanings}", rows)


def memory(bench: Bench) -> str:
    """Return the table of peak memory, beside weights and cache."""
    rows = [["", "weights MB", "cache MB", "peak MB"]]
    for result in bench.results:
        rows.append([result.name, *map(_mb, (result.weight_bytes, result.cache_bytes, result.memory.peak))])
    meanings = "peak: everything except the library itself, including its compiler"
    return _table(f"memory of prefill and decode; {meanings}", rows)


def positions(bench: Bench) -> str:
    """Return the table of a token's time by its position."""
    rows = [["", *map(str, bench.plan.lengths)]]
    for result in bench.results:
        pairs = result.lengths.values()
        rows.append([f"{result.name}, cache", *(_ms(pair.step) for pair in pairs)])
        rows.append([f"{result.name}, no cache", *(_ms(pair.prefill) for pair in pairs)])
    title = "ms per token by position; without a cache this is also the prefill of as many tokens"
    return "\n".join([_table(title, rows), *wrap(sentence(bench), WIDTH)])


def batches(bench: Bench) -> str:
    """Return the table of times by batch size."""
    rows = [["", *map(str, bench.results[0].batches)]]
    for result in bench.results:
        pairs = result.batches.items()
        rows.append([f"{result.name}, prefill ms", *(_ms(pair.prefill) for _, pair in pairs)])
        rows.append([f"{result.name}, decode ms", *(_ms(pair.step) for _, pair in pairs)])
        rows.append(
            [
                f"{result.name}, decode tokens/s",
                *(f"{batch / pair.step.median:,.1f}" for batch, pair in pairs),
            ]
        )
    return _table(f"by batch, at a prompt of {bench.plan.prompt_tokens}", rows)


def heads(bench: Bench) -> str:
    """Return the table of the head at all positions and at the last one."""
    rows = [["", "all ms", "", "last ms", "", "all MB", "last MB"]]
    for result in bench.results:
        rows.append(
            [
                result.name,
                *_spread(result.times["head_all"]),
                *_spread(result.times["head_last"]),
                _mb(result.memory.head_all),
                _mb(result.memory.head_last),
            ]
        )
    meanings = "the head at all positions and at the last only; MB: growth of the process"
    return _table(f"prefill of {bench.plan.prompt_tokens} tokens, {meanings}", rows)


def _table(title: str, rows: Sequence[Row]) -> str:
    """Format rows under a title, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _ms(times: Times) -> str:
    return digits(1e3 * times.median)


def _spread(times: Times) -> tuple[str, str]:
    return _ms(times), f"[{digits(1e3 * times.low)}, {digits(1e3 * times.high)}]"


def _reached(rate: float, limit: float) -> tuple[str, str, str]:
    return digits(rate / 1e9), digits(limit / 1e9), f"{rate / limit:.0%}"


def _mb(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.1f}"
