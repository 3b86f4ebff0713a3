"""Text without characters that are invisible or control a terminal."""

from __future__ import annotations

import pytest

from tinyxp.html.text import escape_unprintable, visible


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b" the", "␣the"),
        (b"\n\t\x00\x1b[31m\x7f", r"\n\t\x00\x1b[31m\x7f"),
        (b"\xe2\x80", r"\xe2\x80"),
        ("é Ж 中".encode(), "é␣Ж␣中"),
        ("\u202e\u2028\xad".encode(), r"\u202e\u2028\xad"),
        ("\u0301".encode(), "◌\u0301"),
        (b"<b>", "<b>"),
        (b"", ""),
    ],
)
def test_every_byte_of_a_token_is_visible_and_harmless(data: bytes, text: str) -> None:
    assert visible(data) == text
    assert all(c.isprintable() for c in text)


def test_spaces_stay_and_lone_surrogates_become_escapes() -> None:
    assert escape_unprintable("a b\ud800\u202e") == r"a b\ud800\u202e"
