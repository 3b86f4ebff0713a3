"""Prints, as Markdown, what ``mutmut run`` found: counts for each file, and each mutant that survived.

Run it in the folder that mutmut ran in, which contains its folder ``mutants``.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from mutmut.stats import status_by_exit_code

from .scope import CORE, MUTANTS, SAMPLE, SAMPLED, codes, fingerprint

REASONS = Path(__file__).with_name("reasons.toml")
UNEXPLAINED = "Not explained, so the tests lack something"
COLUMNS = ("killed", "survived", "timeout")
SURVIVED = ("survived", "no tests")

HEAD = """# What mutmut finds

[mutmut](https://mutmut.readthedocs.io) {mutmut} changes every operator, constant, keyword, comparison and
default of the core, one at a time. It runs the laws and the tests on NumPy {numpy} only.{sampled}
{caught} of {total} changes ({share:.1f} %) are caught. `make mutants` writes this page, and fails if a change
of the core survives that is not explained below.

The column `source` is a hash of the code without comments and docstrings. A test compares those of the core
with the code as it is.
"""


SAMPLE_SENTENCE = " Of each of\nthe packages {} it tries {} changes, drawn with a fixed seed."


class Survivor(NamedTuple):
    """One mutant that no test detected."""

    path: str
    function: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return what its reason is filed under."""
        return f"{self.function}: {self.after}"


def statuses(meta: Path) -> dict[str, str]:
    """Return the status of each mutant of one file that was run, by the mutant's name."""
    named = {name: status_by_exit_code[code] for name, code in codes(meta).items()}
    return {name: status for name, status in named.items() if status != "not checked"}


def functions(path: Path) -> dict[str, tuple[int, list[str]]]:
    """Return the first line and the source of every function and method of a module, by its name."""
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
    """Return a mutant's function: "tinyxp.sampling.xǁSamplerǁdraw__mutmut_8" -> "Sampler.draw"."""
    mangled = name.rpartition(".")[2].partition("__mutmut_")[0]
    return mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def survivors(path: str, names: list[str]) -> Iterator[Survivor]:
    """Yield where each of these mutants of one file differs from the source."""
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
        else:  # a default in the line of the function's name
            renamed = after[0].replace(mutant, function.removeprefix(scope))
            yield Survivor(path, function, first, flat(before[:1]), flat([renamed]))


def flat(lines: list[str]) -> str:
    """Return lines of source as one."""
    return " ".join(line.strip() for line in lines)


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """Yield a row for each file of the core and each sampled package, and their sum."""
    total: Counter[str] = sum(counts.values(), Counter())
    columns = [*COLUMNS, *sorted(total.keys() - set(COLUMNS))]
    yield "| file | source | changes | " + " | ".join(columns) + " |"
    yield "|---|---" + "|---:" * (len(columns) + 1) + "|"
    for name, row in [*counts.items(), ("all", total)]:
        cells = " | ".join(str(row[column]) for column in columns)
        yield f"| {name} | {source_of(name)} | {row.total()} | {cells} |"


def source_of(name: str) -> str:
    """Return the fingerprint of a file or of a package."""
    path = Path(name)
    return fingerprint([path] if path.is_file() else path.rglob("*.py")) if path.exists() else ""


def reasons() -> dict[str, str]:
    """Return why each mutant that is known to survive does no harm, by its key."""
    groups = tomllib.loads(REASONS.read_text())["reason"]
    return {key: group["why"] for group in groups for key in group["mutants"]}


def listing(found: list[Survivor]) -> Iterator[str]:
    """Yield, under each reason, the mutants that survive for it, as differences of lines."""
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
    unfinished = sum(len(codes(MUTANTS / f"{path}.meta")) - len(by_file.get(path, ())) for path in CORE)
    if not by_file or unfinished:
        sys.exit(f"{unfinished} mutants of the core were not run: run mutmut first, to its end")
    counts = {path: Counter(by_file[path].values()) for path in CORE}
    sampled = {
        package: [found for path, found in by_file.items() if path.startswith(f"{package}/") and found]
        for package in SAMPLED
    }
    sampled = {package: files for package, files in sampled.items() if files}
    for package, files in sampled.items():
        counts[package] = sum((Counter(found.values()) for found in files), Counter())
    surviving = [
        survivor
        for path, outcomes in by_file.items()
        for survivor in survivors(path, [name for name, status in outcomes.items() if status in SURVIVED])
    ]
    total = sum(counts.values(), Counter())
    caught = total.total() - len(surviving)
    print(
        HEAD.format(
            mutmut=version("mutmut"),
            numpy=version("numpy"),
            sampled=SAMPLE_SENTENCE.format(", ".join(f"`{p}`" for p in sampled), SAMPLE) if sampled else "",
            total=total.total(),
            caught=caught,
            share=100.0 * caught / total.total(),
        )
    )
    print("\n".join([*table(counts), "", "## Survivors", *listing(surviving)]))
    sys.exit(any(survivor.path in CORE and survivor.key not in reasons() for survivor in surviving))


if __name__ == "__main__":
    main()
