"""parameters: three counts that agree, where the parameters are, and what grouped heads spare."""

from __future__ import annotations

import pytest

import tinyxp

TOTALS = {
    "tiny": "26,784",
    "book": "1,959,296",
    "gpt2": "124,439,808",
    "gpt2-untied": "163,037,184",
    "smollm2-135m": "134,515,008",
    "qwen2-0.5b": "494,032,768",
}


def test_counts_by_formula_shapes_and_file(example, is_png) -> None:
    shown = example("parameters", "--quick")
    rows = [line.split() for line in shown.lines[2:8]]
    assert {row[0]: row[1] for row in rows} == TOTALS
    assert {row[0]: row[2] for row in rows} == TOTALS
    assert {row[0]: row[3] for row in rows if len(row) > 3} == {
        name: TOTALS[name] for name in ("tiny", "book")
    }
    assert any("counted twice would be 163,037,184" in line for line in shown.lines)
    assert is_png(shown.picture)


def test_where_they_go(example) -> None:
    shown = example("parameters", "--quick")
    start = shown.lines.index("Shares in percent")
    header, *rows = [line.split() for line in shown.lines[start + 1 : start + 8]]
    assert header[1:] == ["embed", "pos_embed", "attention", "mlp", "norm", "head"]
    assert next(row for row in rows if row[0] == "book")[1] == "58.7"
    shares = shown.globals["shares"]
    for name in TOTALS:
        assert sum(shares(tinyxp.Config.preset(name)).values()) == pytest.approx(100.0)


def test_heads_and_their_cache(example) -> None:
    shown = example("parameters", "--quick")
    rows = {row[0]: row for row in shown.globals["head_rows"]()}
    assert {name: row[4] for name, row in rows.items()} == {
        "MHA": (768, 768),
        "GQA": (256, 768),
        "MQA": (64, 768),
    }
    assert all(row[3] == row[6] == (768, 768) and row[4] == row[5] for row in rows.values())
    assert {name: row[7:] for name, row in rows.items()} == {
        "MHA": ["2,362,368", "6,291,456", "6,291,456"],
        "GQA": ["1,574,912", "2,097,152", "2,097,152"],
        "MQA": ["1,279,616", "524,288", "524,288"],
    }


def test_shapes_are_those_of_arrays(example) -> None:
    found = example("parameters", "--quick").globals
    for name in ("tiny", "book"):
        config = tinyxp.Config.preset(name)
        assert sum(x.size for x in tinyxp.init(config).values()) == found["in_shapes"](config)
    assert found["in_file"](tinyxp.Config.preset("gpt2")) is None


def test_transformers_counts_the_same(example) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = example("parameters", "--quick").globals
    for name, twice in (("tiny", "26,784"), ("book", "3,108,864"), ("gpt2", "163,037,184")):
        once, listed = found["in_transformers"](tinyxp.Config.preset(name))
        assert (f"{once:,}", f"{listed:,}") == (TOTALS[name], twice)
