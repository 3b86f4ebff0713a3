"""The page of what mutmut finds, from results as mutmut stores them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("mutmut")

from tools.mutation import report


@pytest.fixture
def mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, and mutmut's copy of it with the original and two mutants of one function."""
    monkeypatch.chdir(tmp_path)
    for folder, names in (("", ["f"]), ("mutants", ["x_f__mutmut_orig", "x_f__mutmut_1", "x_f__mutmut_2"])):
        bodies = {"x_f__mutmut_1": "    return a - b\n", "x_f__mutmut_2": "    return a * b\n"}
        default = "    return a + b\n"
        source = "\n\n".join(f"def {n}(a, b=1):\n    a = a\n{bodies.get(n, default)}" for n in names)
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "m.py").write_text(source)
    return tmp_path


def test_a_survivor_is_shown_as_the_lines_that_differ(mutated: Path) -> None:
    (one, two) = report.survivors("m.py", ["m.x_f__mutmut_1", "m.x_f__mutmut_2"])
    assert (one.function, one.line, one.before, one.after) == ("f", 3, "return a + b", "return a - b")
    assert two.key == "f: return a * b"


def test_a_changed_source_is_an_error(mutated: Path) -> None:
    (mutated / "m.py").write_text("def f(a, b=1):\n    a = a\n    return b + a\n")
    with pytest.raises(SystemExit, match="is not what mutmut ran on"):
        list(report.survivors("m.py", ["m.x_f__mutmut_1"]))


def test_the_names_of_mutants() -> None:
    assert report.original("tinyxp.ops.x_silu__mutmut_3") == "silu"
    assert report.original("tinyxp.sampling.xǁSamplerǁchoose__mutmut_8") == "Sampler.choose"


def test_a_table_adds_up(mutated: Path) -> None:
    rows = list(report.table({"m.py": Counter(killed=2, survived=1), "gone.py": Counter(killed=1)}))
    assert rows[-1] == "| all |  | 4 | 3 | 1 | 0 |"
    assert rows[2].startswith("| m.py | ")


def test_every_reason_is_for_a_function_and_is_given_once() -> None:
    for key in report.reasons():
        assert key.partition(": ")[0].replace(".", "").replace("_", "").isalnum()
