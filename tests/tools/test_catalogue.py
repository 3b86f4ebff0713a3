"""The page of the laws is that of the laws."""

from __future__ import annotations

from pathlib import Path

from tinyxp.testing import LAWS
from tools.catalogue import as_markdown

PAGE = Path(__file__).parents[2] / "docs" / "laws.md"


def test_the_page_is_what_the_registry_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_markdown() + "\n"


def test_every_law_is_on_it_once() -> None:
    page = as_markdown()
    for law in LAWS.values():
        name = f"*{law.name}*" if law.is_reference else law.name
        assert page.count(f"| {name} | ") == 1
