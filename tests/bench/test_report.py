"""The record of a bench, and its sentence on the cache."""

from __future__ import annotations

import json
import sys

import pytest

from tinyxp.bench.report import digits, record, sentence, whole_text
from tinyxp.bench.session import Bench, Pair, Result
from tinyxp.bench.timing import Times


def test_the_record_is_json_with_quartiles(tiny_bench: Bench) -> None:
    found = json.loads(json.dumps(record(tiny_bench)))
    (result,) = found["results"]
    assert set(result["seconds"]["prefill"]) == {"median", "low", "high"}
    assert [at["tokens"] for at in result["lengths"]] == [16, 32, 64]
    assert [at["batch"] for at in result["batches"]] == [1, 2, 4, 8]
    assert result["bytes"]["weights"] == 4 * found["model"]["parameters"] == 4 * 26_784
    assert found["machine"]["versions"]["python"] == sys.version.split()[0]
    assert found["cache"] == sentence(tiny_bench)


def test_a_whole_text_is_the_sum_over_its_positions() -> None:
    def at(prefill: float, step: float) -> Pair:
        return Pair(*(Times(seconds, seconds, seconds) for seconds in (prefill, step)))

    lengths = {1: at(1.0, 2.0), 3: at(3.0, 2.0), 5: at(5.0, 2.0)}
    assert whole_text(Result("numpy", "float32", 0, 0, 0, 0, lengths=lengths)) == (5 * 2.0, 1 + 2 + 3 + 4 + 5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (9.999, "10.0"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (0.0, "0.00"),
    ],
)
def test_digits_are_three_or_more_without_an_exponent(value: float, shown: str) -> None:
    assert digits(value) == shown
