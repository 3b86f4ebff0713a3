"""Check the project's prose: Markdown pages, docstrings, comments and messages.

``python -m tools.prose [PATH...]`` prints one line for each finding, ``file:line: text: rule, suggestion``,
and exits with status 1 if there is any. Without paths it checks ``PATHS``. Code is left out: fences, tables
and code spans in Markdown, code spans in docstrings. So are quotations.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PATHS = (
    "README.md",
    "CHANGELOG.md",
    "docs",
    "examples",
    "recipes",
    "benchmarks",
    "tinyxp",
    "backends",
    "tools",
)
"""What is checked by default: files, and folders with all their Markdown and Python files."""
LONGEST_SENTENCE = 35
LONGEST_AVERAGE = 20
"""Words: of any sentence, and of the sentences of a page on average."""

PHRASES = {
    r"(?<![-\w])stands?(?![-\w])(?! (for|alone|by|out|still)\b)": "say 'is'",
    r"\blies?\b(?! (between|within)\b)": "say 'is'",
    r"\bmend(s|ed|ing)?\b": "say 'fix'",
    r"\bpart at (?!least|once|a time)|\bparts (at|too)\b": "say 'first difference at', 'differ'",
    r"\b(they|implementations|sides|logits|traces) parts?\b(?! at\b)": "say 'differ'",
    r"\b(is|are|was|were|be) refused\b": "say 'rejected'",
    r"\bby turns\b": "say 'interleaved'",
    r"(?<!,\s)\bwhatever\b": "say 'any', or leave it out",
    r"\bwherever\b": "say 'if', 'when' or 'in every place that'",
    r"\bthe truth\b": "say 'the float64 reference'",
    r"\brudely\b|\ba run that was stopped\b": "say 'an interrupted run'",
    r"\bnobody\b": "say 'no one', or name who",
    r"\btold\b(?! apart\b)": "say 'passed', 'given' or 'reported'",
    r"\b(go|goes|going|gone) on (with|from)\b": "say 'resume' or 'continue'",
    r"\bbut for\b": "say 'except for'",
    r"\bbesides[,.]": "say 'also' or 'in addition'",
    r"\bis all that\b": "say 'needs only'",
    r"\bdear to\b": "say 'slow to'",
    r"\bseldom\b": "say 'rarely'",
    r"\bput right\b": "say 'corrected'",
    r"\blet go of\b": "say 'delete' or 'release'",
    r"\b(is|are) made (by|from|of|with|when)\b": "say 'built' or 'created'",
    r"(?<!who\s)\bwants\b": "say 'needs' or 'requires'",
    r"\basks? (nothing )?of\b": "say 'needs' or 'requires'",
    r"\bheld (to|against)\b": "say 'compared with' or 'checked against'",
    r"\bin the place of\b": "say 'instead of'",
    r"\bfast(er)? (pieces|twins?)\b": "say 'fast kernels'",
    r"\bof the caller's\b": "say 'of the caller'",
    r"\bwhere (there (is|are) (none|no|any)|none|nothing|not|asked)\b": "say 'if'",
    r"\b(errors?|raises?|only|None|True|False|except|but|or|\w+Error) where\b": "say 'if' or 'when'",
    r"^Where (?![^,:]*[,:] (and|or|in|if)\b)[^?]*,[^?]*$": "begin with 'If' or 'When'",
}
"""Phrasings that this project does not use, as patterns, and what to write instead."""
LEANING = re.compile(r"(The same|As (above|before|for|in)|Likewise|Ditto|See above|Those of)\b")
"""Beginnings of docstrings that need another docstring beside them; an editor shows one alone."""

_PATTERNS = [
    (re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), advice) for pattern, advice in PHRASES.items()
]
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!\bal)(?<!\.)[.!?][\"')\]]*\s+(?=\S)")
_WORD = re.compile(r"\b[A-Za-z][A-Za-z'-]+\b|\b[aAI]\b")
_PRAGMA = re.compile(r"#\s*(type:|noqa|fmt:|ruff:|pragma|!)")
_ITEM = re.compile(r"^\s*([-*]|\d+\.)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?")


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}: {self.advice}"


class Passage(NamedTuple):
    """A paragraph, with a sign for each code span and the text of each link."""

    text: str
    first: int  # line of the file
    kind: str  # page, docstring (its first paragraph), paragraph, comment or message

    def sentences(self) -> Iterator[tuple[int, str]]:
        """Each sentence, and the offset in ``text`` at which it begins."""
        begin = 0
        for end in [*(match.end() for match in _SENTENCE_END.finditer(self.text)), len(self.text)]:
            sentence = self.text[begin:end]
            if sentence.strip():
                yield begin + len(sentence) - len(sentence.lstrip()), sentence.strip()
            begin = end

    def line(self, offset: int) -> int:
        """The line of the file that an offset in ``text`` is on."""
        return self.first + self.text.count("\n", 0, offset)


def check(path: Path) -> list[Finding]:
    """Return the findings in one Markdown or Python file."""
    source = path.read_text(encoding="utf-8")
    passages = page_passages(source) if path.suffix == ".md" else python_passages(source)
    findings: list[Finding] = []
    lengths: list[int] = []
    for passage in passages:
        if passage.kind == "docstring" and LEANING.match(passage.text.lstrip()):
            first = passage.text.strip().splitlines()[0]
            findings.append(
                Finding(str(path), passage.first, first, "must make sense alone: say what it does")
            )
        for offset, sentence in passage.sentences():
            words = len(_WORD.findall(sentence))
            lengths.append(words)
            if words > LONGEST_SENTENCE:
                advice = f"{words} words, at most {LONGEST_SENTENCE}: split it"
                text = " ".join(sentence.replace("C0de", "...").split())
                findings.append(Finding(str(path), passage.line(offset), f"{text[:50]}...", advice))
            for pattern, advice in _PATTERNS:
                for match in pattern.finditer(sentence):
                    text = " ".join(match[0].split())
                    findings.append(Finding(str(path), passage.line(offset + match.start()), text, advice))
    average = sum(lengths) / len(lengths) if lengths else 0.0
    if path.suffix == ".md" and average > LONGEST_AVERAGE:
        advice = f"{average:.1f} words a sentence, at most {LONGEST_AVERAGE}"
        findings.append(Finding(str(path), 1, "the whole page", advice))
    return findings


def page_passages(text: str) -> Iterator[Passage]:
    """Yield the paragraphs, headings and list items of a Markdown page, without its code and tables."""
    lines = text.splitlines()
    if lines[:1] == ["---"]:  # front matter
        end = lines.index("---", 1) + 1
        lines[:end] = [""] * end
    block: list[str] = []
    fenced = False
    for number, line in enumerate([*lines, ""], start=1):
        is_fence = line.lstrip().startswith("```")
        is_code = fenced or is_fence or line.lstrip().startswith(("|", "<", ">")) or _is_indented(line, block)
        fenced ^= is_fence
        starts_anew = not line.strip() or line.startswith("#") or _ITEM.match(line) is not None
        if block and (is_code or starts_anew or block[0].startswith("#")):
            yield Passage("\n".join(block), number - len(block), "page")
            block = []
        if line.strip() and not is_code:
            block.append(_without_code(line.lstrip("# ") if line[0] == "#" else _ITEM.sub("", line, count=1)))


def _is_indented(line: str, block: list[str]) -> bool:
    return line.startswith("    ") and not block


def _without_code(line: str) -> str:
    """The line with a sign for each code span and the text of each link."""
    line = re.sub(r"(`+)(.+?)\1", "C0de", line)  # which is no word
    return _LINK.sub(r"\1", line)


def python_passages(text: str) -> Iterator[Passage]:
    """Yield the docstrings, comments and messages of a Python module."""
    tree = ast.parse(text)
    docstrings = set(_docstrings(tree))
    for node in docstrings:
        yield from _paragraphs(str(node.value), node.lineno)
    yield from _messages(tree, docstrings)
    yield from _comments(text)


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes, functions, and of attributes: strings on their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and _is_string(node.value):
            yield node.value  # type: ignore[misc]


def _paragraphs(text: str, first: int) -> Iterator[Passage]:
    """The paragraphs of a docstring, separated by blank lines or by the items of a list."""
    block: list[str] = []
    for offset, line in enumerate([*text.splitlines(), ""]):
        if block and (not line.strip() or _ITEM.match(line)):
            is_first = offset == len(block)
            yield Passage(
                "\n".join(block), first + offset - len(block), "docstring" if is_first else "paragraph"
            )
            block = []
        if line.strip():
            block.append(_without_code(_ITEM.sub("", line, count=1)))


def _messages(tree: ast.Module, docstrings: set[ast.Constant]) -> Iterator[Passage]:
    """Strings of four words or more: error messages, help texts, what is printed."""
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "code" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node in docstrings or node in inside:
                continue
            text = node.value
        else:
            continue
        if len(_WORD.findall(text)) < 4 or _is_source(text):
            continue
        if "\n\n" in text:  # a page
            for passage in page_passages(text):
                yield passage._replace(first=node.lineno + passage.first - 1)
        else:
            yield Passage(_without_code(" ".join(text.split())), node.lineno, "message")


def _is_source(text: str) -> bool:
    """Whether a string is a program, a style sheet, names or a pattern rather than a sentence."""
    return (
        re.search(
            r"[;{}]\s*\n|^\s*(def|class|import|from|return|if|for) .*:?$|\\[bwsd]|\w\(\w*\)|__\w+__",
            text,
            re.M,
        )
        is not None
    )


def _comments(text: str) -> Iterator[Passage]:
    """Comments; those on consecutive lines of their own are one passage."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or _PRAGMA.match(token.string):
            continue
        line, is_alone = token.start[0], not token.line[: token.start[1]].strip()
        if block and not (is_alone and line == block[-1][0] + 1):
            yield Passage("\n".join(part for _, part in block), block[0][0], "comment")
            block = []
        block.append((line, _without_code(token.string.lstrip("#: "))))
    if block:
        yield Passage("\n".join(part for _, part in block), block[0][0], "comment")


def files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the Markdown and Python files among and below the paths, in order."""
    for path in map(Path, paths):
        if path.is_dir():
            yield from (each for each in sorted(path.rglob("*")) if each.suffix in (".md", ".py"))
        else:
            yield path


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit status."""
    findings = [finding for path in files(arguments or PATHS) for finding in check(path)]
    for finding in findings:
        print(finding)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
