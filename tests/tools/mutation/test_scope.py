"""What mutmut changes, and the fingerprints that tell whether its page is current."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tools.mutation import scope
from tools.mutation.scope import CORE, SAMPLED, fingerprint, sample

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "mutmut.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CORE)
def test_the_page_is_of_the_core_as_it_is(path: str) -> None:
    """``make mutants`` writes it again after a change of the code; docstrings and comments do not matter."""
    assert re.findall(rf"^\| {path} \| (\w+) \|", PAGE, re.M) == [fingerprint([ROOT / path])]


def test_mutmut_is_configured_for_the_same_files() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    assert settings["only_mutate"] == [*CORE, *(f"{package}/*" for package in SAMPLED)]
    names = {path.removeprefix("tinyxp/").removesuffix(".py") for path in CORE}
    (line,) = re.findall(r"^CORE := \$\(foreach name,(.*?),", (ROOT / "Makefile").read_text(), re.M)
    assert set(line.split()) == names
    for path in settings["pytest_add_cli_args_test_selection"]:
        assert (ROOT / path).exists(), path


def test_a_fingerprint_is_of_the_code_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.py"

    def of(source: str) -> str:
        path.write_text(source)
        return fingerprint([path])

    plain = of("def f(x):\n    return x + 1\n")
    assert of('"""Doc."""\ndef f(x):\n    """Doc."""\n    # why\n    return (x + 1)\n') == plain
    assert of("def f(x):\n    return x + 2\n") != plain


def test_a_sample_is_the_same_for_the_same_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "MUTANTS", tmp_path)
    (tmp_path / "tinyxp" / "text").mkdir(parents=True)
    names = [f"tinyxp.text.bpe.x_f__mutmut_{i}" for i in range(50)]
    record = {"exit_code_by_key": dict.fromkeys(names)}
    (tmp_path / "tinyxp" / "text" / "bpe.py.meta").write_text(json.dumps(record))
    first = sample("tinyxp/text", 10)
    assert first == sample("tinyxp/text", 10)
    assert len(set(first)) == 10
    assert set(first) <= set(names)
    assert sample("tinyxp/text", 99) == sorted(names)
