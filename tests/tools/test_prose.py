"""tools/prose.py: each rule finds what it is for, in each kind of text, and leaves code alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import prose

ROOT = Path(__file__).parents[2]
LONG = "This sentence has " + "many " * 33 + "words."
AS_BEFORE = '''def f():
    """The same for a batch."""
'''

BREAKS = [
    "The value stands in the config.",
    "The tables lie in memory.",
    "Mend it: take theta from the config.",
    "They part at logits.",
    "Their logits part there.",
    "Other keys are refused by name.",
    "Both run by turns.",
    "It takes whatever array there is.",
    "Checked wherever values are concrete.",
    "The truth is the run in float64.",
    "A run that was stopped continues.",
    "Nobody would hear.",
    "It must be told so.",
    "Go on with the last checkpoint.",
    "They agree but for rounding.",
    "Text and, besides, tables.",
    "Python is all that it needs.",
    "The module is dear to import.",
    "It seldom matters.",
    "The values are put right first.",
    "Let go of the arguments.",
    "A cache is made of zeros.",
    "The decoder wants ids.",
    "It asks nothing of the network.",
    "Kernels are held to the plain functions.",
    "Used in the place of ours.",
    "With the library's fast pieces.",
    "Notes of the caller's.",
    "None, where there is no mask.",
    "ValueError where the shape is wrong.",
    "Where a mask is given, padding is hidden.",
]


def findings(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [str(finding).removeprefix(f"{path}:") for finding in prose.check(path)]


@pytest.mark.parametrize("sentence", BREAKS)
def test_each_phrasing_is_found_on_a_page(tmp_path: Path, sentence: str) -> None:
    (found,) = findings(tmp_path, "page.md", f"# Page\n\nA line before.\n{sentence}\n")
    assert found.startswith("4: ")


def test_each_pattern_has_a_sentence_of_its_own() -> None:
    for pattern in prose.PHRASES:
        assert any(re.search(pattern, sentence, re.IGNORECASE) for sentence in BREAKS), pattern


@pytest.mark.parametrize(
    "text, line",
    [
        ('"""Say it.\n\nBoth run by turns.\n"""\n', 3),
        ('def f():\n    """Say it by turns."""\n', 2),
        ('X = 1\n"""Both run by turns."""\n', 2),
        ("# Both run\n# by turns.\n", 2),
        ("X = 1  # both run by turns\n", 1),
        ('raise ValueError("both of them run by turns")\n', 1),
        ('raise ValueError(f"both of {X} run by turns here")\n', 1),
    ],
    ids=["module", "function", "attribute", "comment", "inline comment", "message", "formatted message"],
)
def test_python_text_is_checked_on_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert findings(tmp_path, "module.py", text) == [f"{line}: by turns: say 'interleaved'"]


@pytest.mark.parametrize(
    "name, text",
    [
        ("page.md", "```\nBoth run by turns.\n```\n"),
        ("page.md", "Say `by turns` or ``a `by turns` b``.\n"),
        ("page.md", "| by turns | whatever |\n"),
        ("page.md", "> Both run by turns.\n"),
        ("page.md", "Text.\n\n    both run by turns\n"),
        ("page.md", "---\ntext: by turns\n---\nText.\n"),
        ("page.md", "The name stands for a number, and can stand alone.\n"),
        ("page.md", "The same, whatever the dtype.\n"),
        ("page.md", "They can be told apart; a `blocks-stand` or blocks-stand.\n"),
        ("page.md", "A head lies between its values.\n"),
        ("page.md", "Where they differ first, and whether it matters.\n"),
        ("page.md", "Where does it begin, and why?\n"),
        ("page.md", "The place where the error is largest.\n"),
        ("module.py", "by = turns = 1\n"),
        ("module.py", '"""Calls ``xp.where`` and ``by turns``."""\n'),
        ("module.py", "f(r'\\bby turns\\b it is run')\n"),
        ("module.py", AS_BEFORE.replace("The same", "Logits")),
    ],
)
def test_what_is_no_prose_or_breaks_no_rule_passes(tmp_path: Path, name: str, text: str) -> None:
    assert findings(tmp_path, name, text) == []


def test_long_sentences_are_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "module.py", f'"""{LONG}"""\n')
    assert found.startswith("1: This sentence has many")
    assert "37 words, at most 35" in found
    assert findings(tmp_path, "module.py", f'"""{LONG.replace("many many many ", "many ")}"""\n') == []


def test_a_page_is_short_sentences_on_average(tmp_path: Path) -> None:
    long = " ".join(["word"] * 30)
    text = f"Begin {long}. Then {long}.\n"
    (found,) = findings(tmp_path, "page.md", text)
    assert found == "1: the whole page: 31.0 words a sentence, at most 20"
    assert findings(tmp_path, "page.md", text + "\nA short one. Another short one. And this.\n") == []
    assert findings(tmp_path, "module.py", f'"""{text}"""\n') == []


def test_docstrings_must_make_sense_alone(tmp_path: Path) -> None:
    assert findings(tmp_path, "module.py", AS_BEFORE) == [
        "2: The same for a batch.: must make sense alone: say what it does"
    ]
    assert findings(tmp_path, "module.py", '"""Do it.\n\nThe same every time."""\n') == []


def test_formulas_are_not_words(tmp_path: Path) -> None:
    formula = "m <- b1 m + (1 - b1) g; " * 20
    assert findings(tmp_path, "module.py", f'"""One update: {formula}."""\n') == []


def test_the_command_prints_findings_and_its_status_says_whether_there_are_any(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "page.md").write_text("Both run by turns.\n")
    (tmp_path / "bad" / "data.txt").write_text("Both run by turns.\n")
    (tmp_path / "good.md").write_text("Both are interleaved.\n")

    def run(path: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.prose", str(path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    bad, good = run(tmp_path / "bad"), run(tmp_path / "good.md")
    assert (bad.returncode, good.returncode) == (1, 0)
    assert bad.stdout == f"{tmp_path / 'bad' / 'page.md'}:1: by turns: say 'interleaved'\n"
    assert good.stdout == ""


def test_the_default_paths_exist() -> None:
    assert all((ROOT / path).exists() for path in prose.PATHS)


def test_a_number_at_a_sentence_end_is_no_list_item(tmp_path: Path) -> None:
    text = LONG.replace("words.", "words, 1.5. And more.").replace("many many many ", "")
    assert findings(tmp_path, "page.md", f"{text}\n") == []
