"""Prints, as Markdown, what ``mutmut run`` found: counts for each file, and each mutant that went unnoticed.

Run it where mutmut ran, beside the folder ``mutants``.
"""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from mutmut.stats import status_by_exit_code

MUTANTS = Path("mutants")
REASONS = Path(__file__).with_name("reasons.toml")
UNEXPLAINED = "Not explained, so the tests lack something"
COLUMNS = ("killed", "survived", "timeout")
UNNOTICED = ("survived", "no tests")

HEAD = """# What mutmut finds

[mutmut](https://mutmut.readthedocs.io) {mutmut} changes every operator, constant, keyword, comparison and
default of `ops.py`, `model.py`, `cache.py` and `sampling.py`, one at a time, and runs the laws and the tests
of these modules on NumPy {numpy} alone. {caught} of {total} changes ({share:.1f} %) are caught.
`make mutants` writes this page, and fails where a change survives that is not explained below.
"""


class Survivor(NamedTuple):
    """One mutant that no test noticed."""

    path: str
    function: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What reasons are filed under."""
        return f"{self.function}: {self.after}"


def statuses(meta: Path) -> dict[str, str]:
    """What became of each mutant of one file, by the mutant's name."""
    codes = json.loads(meta.read_text())["exit_code_by_key"]
    return {name: status_by_exit_code[code] for name, code in codes.items()}


def functions(path: Path) -> dict[str, tuple[int, list[str]]]:
    """The first line and the source of every function and method of a module, by its name."""
    source = path.read_text()
    lines, found = source.splitlines(), {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = (node.lineno, lines[node.lineno - 1 : node.end_lineno])

    visit(ast.parse(source).body, "")
    return found


def original(name: str) -> str:
    """The function that a mutant stands for: "tinyxp.sampling.xǁSamplerǁdraw__mutmut_8" -> "Sampler.draw"."""
    mangled = name.rpartition(".")[2].partition("__mutmut_")[0]
    return mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def survivors(path: str, names: list[str]) -> Iterator[Survivor]:
    """Where each of these mutants of one file differs from the source."""
    sources, changed = functions(Path(path)), functions(MUTANTS / path)
    for name in names:
        function, mutant = original(name), name.rpartition(".")[2]
        scope = function.removesuffix(function.rpartition(".")[2])
        first, before = sources.get(function, (0, []))
        _, copied = changed[f"{scope}{mutant.partition('__mutmut_')[0]}__mutmut_orig"]
        if before[1:] != copied[1:]:
            sys.exit(f"{function} in {path} is not what mutmut ran on: mutmut run comes first")
        _, after = changed[scope + mutant]
        edits = SequenceMatcher(None, before[1:], after[1:], autojunk=False).get_opcodes()
        spans = [edit[1:] for edit in edits if edit[0] != "equal"]
        if spans:
            (a, _, c, _), (_, b, _, d) = spans[0], spans[-1]
            yield Survivor(path, function, first + 1 + a, flat(before[1:][a:b]), flat(after[1:][c:d]))
        else:  # a default in the line that has the function's name
            renamed = after[0].replace(mutant, function.removeprefix(scope))
            yield Survivor(path, function, first, flat(before[:1]), flat([renamed]))


def flat(lines: list[str]) -> str:
    """Lines of source as one."""
    return " ".join(line.strip() for line in lines)


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """A row for each file, and their sum."""
    total: Counter[str] = sum(counts.values(), Counter())
    columns = [*COLUMNS, *sorted(total.keys() - set(COLUMNS))]
    yield "| file | mutants | " + " | ".join(columns) + " |"
    yield "|---" + "|---:" * (len(columns) + 1) + "|"
    for name, row in [*counts.items(), ("all", total)]:
        yield f"| {name} | {row.total()} | " + " | ".join(str(row[column]) for column in columns) + " |"


def reasons() -> dict[str, str]:
    """Why each mutant that is known to survive does no harm, by its key."""
    groups = tomllib.loads(REASONS.read_text())["reason"]
    return {key: group["why"] for group in groups for key in group["mutants"]}


def listing(found: list[Survivor]) -> Iterator[str]:
    """Under each reason the mutants that survive for it; the line with + stands in place of that with -."""
    known = reasons()
    by_reason: dict[str, list[Survivor]] = {}
    for survivor in found:
        by_reason.setdefault(known.get(survivor.key, UNEXPLAINED), []).append(survivor)
    for why, survivors in sorted(by_reason.items(), key=lambda pair: (pair[0] != UNEXPLAINED, -len(pair[1]))):
        yield from ("", f"### {len(survivors)}: {why}", "", "```diff")
        for s in survivors:
            yield from (
                f"@@ {s.path}, line {s.line}, {s.function} @@",
                f"- {s.before}",
                f"+ {s.after}".rstrip(),
            )
        yield "```"


def main() -> None:
    by_file = {
        str(meta.relative_to(MUTANTS).with_suffix("")): statuses(meta)
        for meta in sorted(MUTANTS.rglob("*.py.meta"))
    }
    counts = {path: Counter(found.values()) for path, found in by_file.items()}
    unfinished = sum(row["not checked"] for row in counts.values())
    if not counts or unfinished:
        sys.exit(f"{unfinished} mutants were not run: mutmut run comes first, and must come to its end")
    found = [
        survivor
        for path, outcomes in by_file.items()
        for survivor in survivors(path, [name for name, status in outcomes.items() if status in UNNOTICED])
    ]
    total = sum(counts.values(), Counter())
    caught = total.total() - len(found)
    print(
        HEAD.format(
            mutmut=version("mutmut"),
            numpy=version("numpy"),
            total=total.total(),
            caught=caught,
            share=100.0 * caught / total.total(),
        )
    )
    print("\n".join([*table(counts), "", "## Survivors", *listing(found)]))
    sys.exit(any(survivor.key not in reasons() for survivor in found))


if __name__ == "__main__":
    main()
