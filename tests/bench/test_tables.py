"""The text of a bench: aligned tables that say what they show."""

from __future__ import annotations

from tinyxp.bench.session import Bench
from tinyxp.bench.tables import text


def test_tables_are_aligned_and_say_what_they_show(tiny_bench: Bench) -> None:
    lines = text(tiny_bench).splitlines()
    assert lines[0] == "tiny: random weights, 26,784 parameters"
    assert lines[-1].startswith("note: left out: numpy bfloat16")
    assert max(map(len, lines[4:-1])) <= 110
    head = next(i for i, line in enumerate(lines) if line.startswith("prefill of 32"))
    assert len(lines[head + 1]) == len(lines[head + 2])
    for word in ("GFLOP/s", "GB/s", "peak MB", "reached", "no cache", "decode tokens/s", "last ms"):
        assert word in text(tiny_bench)
