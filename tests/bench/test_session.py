"""A whole bench of the smallest model: what is there, and what follows from what."""

from __future__ import annotations

import sys

import pytest

from tinyxp.bench.plan import Plan
from tinyxp.bench.session import Bench, measure


def test_a_bench_holds_every_measurement(tiny_bench: Bench) -> None:
    (result,) = tiny_bench.results
    assert result.name == "numpy float32"
    assert set(result.times) == {"prefill", "step", "first_token", "head_all", "head_last", "product", "pass"}
    assert list(result.lengths) == [16, 32, 64]
    assert list(result.batches) == [1, 2, 4, 8]
    assert result.batches[1] is result.lengths[32]
    assert result.cache_bytes == 2 * 2 * 2 * 8 * 32 * 4
    assert all(times.low <= times.median <= times.high for times in result.times.values())


def test_rates_are_amounts_over_times(tiny_bench: Bench) -> None:
    (result,) = tiny_bench.results
    median = result.times["prefill"].median
    assert result.flops_per_second["prefill"] * median == pytest.approx(result.prefill_flops)
    assert result.bytes_per_second["pass"] * result.times["pass"].median == pytest.approx(result.pass_bytes)
    assert result.compile_seconds >= 0


def test_a_dtype_that_a_backend_lacks_is_noted(tiny_bench: Bench) -> None:
    (note,) = tiny_bench.notes
    assert note.startswith("left out: numpy bfloat16, since dtype is 'bfloat16'; numpy has float64, float32")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts it")
def test_memory_holds_the_weights(tiny_bench: Bench) -> None:
    found = tiny_bench.results[0].memory
    assert found.peak is not None
    assert found.peak > 26_784 * 4
    assert found.head_all is not None
    assert found.head_last is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backends": ("cupy",)}, "backend is 'cupy'; known are"),
        ({"dtypes": ("float8",)}, "dtype is 'float8'; known are"),
        ({"dtypes": ("float32", "float8")}, "dtype is 'float8'; known are"),
        ({"dtypes": ("bfloat16",)}, "dtype is 'bfloat16'; numpy has"),
    ],
)
def test_unknown_names_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(Plan(**{"model": "tiny", "backends": ("numpy",)} | fields))


def test_a_failure_to_count_memory_loses_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    done = []
    found = measure(Plan(model="tiny", backends=("numpy",), repeats=1, rest=0.0), lambda *at: done.append(at))
    assert found.notes == ["measuring the memory of numpy in float32 failed: status 1"]
    assert found.results[0].memory.peak is None
    assert done[-1] == (8, 8)
