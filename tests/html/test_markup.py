"""Only the constructors of Html turn text into markup, and their templates are literals."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyxp.html.markup
from tinyxp.html.markup import embed_json, escape, fill, join, read_asset

FOLDER = Path(tinyxp.html.markup.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))


def is_literal(node: ast.expr) -> bool:
    """A string constant, or a choice between such."""
    if isinstance(node, ast.IfExp):
        return is_literal(node.body) and is_literal(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def violations(source: str, *, constructors: bool = False) -> Iterator[str]:
    """Where source makes markup in a way that the type checker cannot judge."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == "cast":
            yield f"{node.lineno}: cast"
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name == "Html" and not constructors:
            yield f"{node.lineno}: Html()"
        if name == "fill" and not is_literal(node.args[0]):
            yield f"{node.lineno}: the template of fill"
        separators = [*node.args[1:], *(x.value for x in node.keywords if x.arg == "separator")]
        if name == "join" and isinstance(node.func, ast.Name) and not all(map(is_literal, separators)):
            yield f"{node.lineno}: the separator of join"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_make_html_only_from_literals(path: Path) -> None:
    """mypy rejects a str in place of Html; this test checks what it takes on trust."""
    source = path.read_text(encoding="utf-8")
    assert list(violations(source, constructors=path.name == "markup.py")) == []
    assert "type: ignore" not in source


@pytest.mark.parametrize(
    ("source", "violation"),
    [
        ("Html(name)", "1: Html()"),
        ("markup.Html(name)", "1: Html()"),
        ("fill(f'<b>{name}</b>')", "1: the template of fill"),
        ("fill('<b>' + name)", "1: the template of fill"),
        ("fill('a' if x else name)", "1: the template of fill"),
        ("join(parts, name)", "1: the separator of join"),
        ("join(parts, separator=name)", "1: the separator of join"),
        ("cast(Html, name)", "1: cast"),
    ],
)
def test_the_check_sees_a_violation(source: str, violation: str) -> None:
    assert list(violations(source)) == [violation]
    assert list(violations("fill('<b>{x}</b>' if y else '', x=z)\njoin(parts, '; ')")) == []


def test_text_is_escaped_for_elements_and_attributes() -> None:
    assert escape("<a href='x'>&\"") == "&lt;a href=&#x27;x&#x27;&gt;&amp;&quot;"
    assert escape("\u202e\ud800\n") == r"\u202e\ud800\n"
    assert escape(3) == "3"


def test_templates_are_filled_with_html_and_numbers() -> None:
    assert fill('<i x="{x:.1f}">{a}</i>', x=1.25, a=escape("<")) == '<i x="1.2">&lt;</i>'
    assert join([escape("<"), escape("a")], "<br>") == "&lt;<br>a"


def test_data_cannot_end_its_element() -> None:
    text = embed_json({"x": "</script><!--"})
    assert "<" not in text
    assert json.loads(text) == {"x": "</script><!--"}


def test_numbers_that_json_lacks_are_rejected() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed_json([float("nan")])


def test_every_asset_is_read_and_cannot_end_its_element() -> None:
    names = {path.name for path in (FOLDER / "assets").iterdir()}
    assert names == {f"{page}.{kind}" for page in ("page", "diff", "trace") for kind in ("css", "js")}
    for name in names:
        assert "</" not in read_asset(name)
        assert "<!--" not in read_asset(name)
