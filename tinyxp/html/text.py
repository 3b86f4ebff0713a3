"""Text that is safe to show: no character is invisible or controls a terminal or a page."""

from __future__ import annotations

import unicodedata


def escape_unprintable(text: str) -> str:
    """Replace each character that is not printable by its Python escape, such as \\u202e."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(data: bytes) -> str:
    """Return the bytes of a token as one line of visible characters.

    A space becomes ␣. Control characters and bytes that are not UTF-8 are escaped as in Python (\\n, \\xe2),
    and so are other characters that are not printable (\\u202e). A combining character gets a base, ◌.
    """

    def show(c: str) -> str:
        if c == " ":
            return "␣"
        return f"◌{c}" if unicodedata.combining(c) else c

    return "".join(map(show, escape_unprintable(data.decode("utf-8", "backslashreplace"))))
