"""The text, the record and the picture of a bench."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tinyxp.bench.measure import Bench, Pair, Result
from tinyxp.bench.plot import draw, need_matplotlib
from tinyxp.bench.report import digits, record, sentence, whole_text
from tinyxp.bench.tables import text
from tinyxp.bench.timing import Times


def test_tables_are_aligned_and_say_what_they_show(tiny_bench: Bench) -> None:
    lines = text(tiny_bench).splitlines()
    assert lines[0] == "tiny: random weights, 26,784 parameters"
    assert lines[-1].startswith("note: left out: numpy bfloat16")
    assert max(map(len, lines[4:-1])) <= 110
    head = next(i for i, line in enumerate(lines) if line.startswith("prefill of 32"))
    assert len(lines[head + 1]) == len(lines[head + 2])
    for word in ("GFLOP/s", "GB/s", "peak MB", "reached", "no cache", "decode tokens/s", "last ms"):
        assert word in text(tiny_bench)


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


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_the_picture(tiny_bench: Bench, tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw(tiny_bench, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_file_that_would_be_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"plot is 'a.txt'; it must end in one of .png, .svg, .pdf"):
        need_matplotlib("a.txt")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'tinyxp\[plot\]'"):
        need_matplotlib("a.png")
