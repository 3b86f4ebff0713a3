"""languages: tokens that cut characters apart, and one sentence in eight languages."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

COUNTS = {
    "English": (11, 10, 10),
    "German": (19, 14, 11),
    "Turkish": (22, 16, 15),
    "Uzbek": (24, 23, 19),
    "Russian": (54, 26, 15),
    "Hindi": (54, 37, 13),
    "Korean": (47, 22, 19),
    "Chinese": (24, 15, 11),
}


@pytest.mark.usefixtures("tiktoken_files")
def test_counts_and_characters(example, is_png) -> None:
    shown = example("languages")
    lines = shown.lines
    rows = {row[0]: row for row in map(str.split, lines) if row and row[0] in COUNTS}
    assert {name: tuple(map(int, row[2:5])) for name, row in rows.items()} == COUNTS
    assert {name: row[5:8] for name, row in rows.items()}["Russian"] == ["4.9", "2.6", "1.5"]
    assert lines[0] == "도서관 in gpt2: 3 characters, 9 bytes, 9 tokens"
    assert [line.split()[-1] for line in lines[2:11]] == [
        *("''", "''", "'도'", "''", "''", "'서'", "''", "''", "'관'")
    ]
    assert f"token by token, joined: {9 * chr(0xFFFD)}" in lines
    assert "whole, or by a stream:  도서관" in lines
    assert is_png(shown.picture)


@pytest.mark.usefixtures("tiktoken_files")
def test_sentences_are_composed_and_come_back(example) -> None:
    found = example("languages").globals
    for tokenizer in found["load_tokenizers"]().values():
        for text in (found["WORD"], *found["SENTENCES"].values()):
            assert unicodedata.is_normalized("NFC", text)
            pieces = [whole for *_, whole in found["token_by_token"](tokenizer, text)]
            assert "".join(pieces) == tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("missing", ["tiktoken", "files"])
def test_what_is_missing_is_one_line(
    example,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    def unreachable(name: str) -> None:
        raise OSError("no network: none\nat all")

    if missing == "files":
        monkeypatch.setattr(pytest.importorskip("tiktoken"), "get_encoding", unreachable)
    else:
        monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(SystemExit) as stopped:
        example("languages")
    said = capsys.readouterr()
    assert stopped.value.code == 2
    reason = {
        "files": "the ranks of tiktoken's gpt2 cannot be read",
        "tiktoken": "the encoding gpt2 needs tiktoken",
    }[missing]
    assert said.err.startswith(f"languages: {reason}; pip install 'tinyxp[hf]'")
    assert "TIKTOKEN_CACHE_DIR" in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []
