"""What a bench found, in a sentence and as a record for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tinyxp.bench.plan import STEPS
from tinyxp.bench.session import Bench, Result
from tinyxp.shapes import count_parameters


def record(bench: Bench) -> dict[str, Any]:
    """Return all measurements as plain data: seconds (medians and quartiles), bytes, operations."""
    plan = bench.plan
    return {
        "machine": bench.machine,
        "model": {
            "name": plan.model,
            "weights": "random" if plan.is_preset else "read",
            "parameters": count_parameters(plan.config)["total"],
            "config": asdict(plan.config),
        },
        "prompt": plan.prompt_tokens,
        "repeats": {"prefill": plan.repeats, "step": STEPS * plan.repeats},
        "results": [_result(result, plan.prompt_tokens) for result in bench.results],
        "cache": sentence(bench),
        "notes": bench.notes,
    }


def _result(result: Result, prompt: int) -> dict[str, Any]:
    def pairs(measured: dict[int, Any], key: str) -> list[dict[str, Any]]:
        return [
            {key: at, "prefill": pair.prefill._asdict(), "step": pair.step._asdict()}
            for at, pair in measured.items()
        ]

    times = result.times
    return {
        "backend": result.backend,
        "dtype": result.dtype,
        "seconds": {name: each._asdict() for name, each in times.items()},
        "first_call_seconds": {"prefill": result.first_prefill, "step": result.first_step},
        "compile_seconds": result.compile_seconds,
        "prefill_tokens_per_second": prompt / times["prefill"].median,
        "step_tokens_per_second": 1 / times["step"].median,
        "flops": {"prefill": result.prefill_flops, "product": result.product_flops},
        "flops_per_second": result.flops_per_second,
        "bytes": {
            "weights": result.weight_bytes,
            "cache": result.cache_bytes,
            "read_by_a_token": result.bytes_read,
            "read_by_the_pass": result.pass_bytes,
        },
        "bytes_per_second": result.bytes_per_second,
        "memory": result.memory._asdict(),
        "lengths": pairs(result.lengths, "tokens"),
        "batches": pairs(result.batches, "batch"),
    }


def sentence(bench: Bench) -> str:
    """Return what the cache does to the time of a token, with the numbers of the first result."""
    result = bench.results[0]
    short, long = min(result.lengths), max(result.lengths)
    ends = (result.lengths[short], result.lengths[long])
    with_cache, without = ([digits(1e3 * pair[i].median) for pair in ends] for i in (1, 0))
    cached, whole = map(digits, whole_text(result))
    grown = result.cache_bytes / bench.plan.prompt_tokens
    return (
        f"{result.name}: with the cache a token takes {with_cache[0]} ms at position {short} and "
        f"{with_cache[1]} ms at {long:,}. Each step reads the weights once, "
        f"{digits(result.bytes_read / 1e6)} MB, and a cache that grows by {digits(grown / 1e3)} kB per "
        f"token. Without the cache it takes {without[0]} ms and {without[1]} ms: the step at position t "
        "computes all t columns again. The time of a step then grows with t, and that of a whole text with "
        f"its square: {long:,} tokens take {cached} s with the cache and {whole} s without it."
    )


def whole_text(result: Result) -> tuple[float, float]:
    """Return the seconds for all tokens up to the longest length, with the cache and without.

    This is the sum over positions, interpolated linearly between those measured.
    """
    at = list(result.lengths)
    positions = np.arange(1, max(at) + 1)
    step, whole = (
        float(np.interp(positions, at, [pair[i].median for pair in result.lengths.values()]).sum())
        for i in (1, 0)
    )
    return step, whole


def digits(value: float) -> str:
    """Format a number with three digits or more and no exponent: 0.0123, 1.23, 12,345."""
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:,.{max(0, 2 - exponent)}f}"
