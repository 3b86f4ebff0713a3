"""The page of what the model requests of an array library."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from tools.array_api.page import as_markdown
from tools.array_api.recorder import Recorder
from tools.array_api.usage import Usage

PAGE = Path(__file__).parents[3] / "docs" / "array-api.md"
MASK = [[False, True, True, True, True]]
TARGETS = [[1, 4, 1, 5, -100]]


def test_the_command_prints_the_page(
    usage: Usage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.array_api.usage.array_api_usage", lambda: usage)
    runpy.run_module("tools.array_api", run_name="__main__")
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


def test_the_page_is_current(usage: Usage) -> None:
    assert as_markdown(usage) == PAGE.read_text(encoding="utf-8")


def test_what_a_bad_function_does_is_on_the_page() -> None:
    recorder = Recorder(np)
    x = recorder.array([0.0, 1.0, 2.0])
    x[x > 1.0] = 0.0
    x[x < 1.0]
    recorder.namespace.einsum("i->", x)
    page = as_markdown(Usage({use: frozenset({("forward", "Llama")}) for use in recorder.uses}))
    assert "| an index that is a boolean array (`boolean_indexing`) | yes | `x[bool]` in forward |" in page
    assert "| writing in place | yes | `x[bool] = y` in forward |" in page
    assert "| `einsum(a str, float64) -> float64` | x |  |  |  |  |  | Llama |" in page
