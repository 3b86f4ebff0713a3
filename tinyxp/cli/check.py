"""``tinyxp check``: the laws of a decoder, judged on every backend."""

from __future__ import annotations

import json
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tinyxp.cli.mutants import judge_laws
from tinyxp.cli.progress import counted

if TYPE_CHECKING:
    from tinyxp.testing import Law, Subject, Verdict

SUBJECTS = ("numpy", "torch", "jax", "strict")
SIGNS = {"pass": "pass", "fail": "FAIL", "n/a": "-"}


class Judged(NamedTuple):
    """A verdict, and how long it took."""

    verdict: Verdict
    seconds: float


@click.command()
@click.option(
    "--backend",
    "names",
    metavar="NAMES",
    help="What to judge, separated by commas: backends, a backend with its kernels (torch+kernels), any "
    f"importable array namespace.  [default: those of {', '.join(SUBJECTS)} that are installed]",
)
@click.option(
    "--laws",
    "pattern",
    metavar="PATTERN",
    default="*",
    show_default=True,
    help="Laws by name, kind or region, such as 'cache' or '*mask*'; several are separated by commas.",
)
@click.option(
    "--max-examples", metavar="N", type=int, default=20, show_default=True, help="Cases to draw for each law."
)
@click.option("--all-shapes", is_flag=True, help="Draw shapes freely where each is compiled too: slow.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object: laws and verdicts.")
@click.option(
    "--mutants", is_flag=True, help="Judge the laws: do they see decoders known to be wrong? Takes minutes."
)
@click.option("--markdown", is_flag=True, help="With --mutants: print a page of Markdown.")
def check(
    names: str | None,
    pattern: str,
    max_examples: int,
    all_shapes: bool,
    as_json: bool,
    mutants: bool,
    markdown: bool,
) -> int:
    """Judge this decoder by the laws that every decoder must keep.

    The same cases in every run. Exit status 0: all laws hold (with --mutants: every mutant breaks a law of
    its region); 1: one is broken (a mutant survives); 2: bad input.
    """
    from tinyxp.checks import as_integer

    max_examples = as_integer("max_examples", max_examples, low=1)
    if markdown and (as_json or not mutants):
        raise ValueError("--markdown goes with --mutants, and without --json")
    if mutants:
        if names is not None or all_shapes:
            raise ValueError("--mutants judges on NumPy: it goes with neither --backend nor --all-shapes")
        need_hypothesis()
        return judge_laws(pattern, max_examples, "json" if as_json else "markdown" if markdown else "text")
    laws, subjects = chosen(names, pattern, pooled=False if all_shapes else None)
    found = judged(laws, subjects, max_examples)
    if as_json:
        click.echo(json.dumps(record(laws, found)))
    else:
        click.echo("\n".join([*table(subjects, found), *summary(found), *reports(found)]))
    return int(any(verdict.status == "fail" for verdict, _ in found))


def chosen(names: str | None, pattern: str, pooled: bool | None) -> tuple[list[Law], list[Subject]]:
    """The laws and the subjects that the options name; ValueError for unknown ones."""
    need_hypothesis()
    import tinyxp
    from tinyxp.testing import select, subject

    if names is None:
        installed = tinyxp.available_backends()
        wanted = [name for name in SUBJECTS if installed[name] is not None]
    else:
        wanted = list(dict.fromkeys(name.strip() for name in names.split(",")))
    return select(pattern), [subject(name, pooled=pooled) for name in wanted]


def need_hypothesis() -> None:
    """ImportError that says what to install, where Hypothesis is missing."""
    try:
        import tinyxp.testing  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError("'hypothesis' is not installed: pip install 'tinyxp[check]'") from error


def judged(laws: list[Law], subjects: list[Subject], max_examples: int) -> list[Judged]:
    """The verdicts, law by law."""
    from hypothesis.configuration import set_hypothesis_home_dir

    from tinyxp.testing import judge

    found = []
    with TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)  # its own would be a folder here
        for law, subject in counted([(law, subject) for law in laws for subject in subjects], "checking"):
            start = time.perf_counter()
            verdict = judge(law, subject, max_examples=max_examples, derandomize=True)
            found.append(Judged(verdict, time.perf_counter() - start))
        set_hypothesis_home_dir(None)
    return found


def table(subjects: list[Subject], found: list[Judged]) -> list[str]:
    """A line for each law, under its region; a column for each subject."""
    rows: dict[str, dict[str, list[str]]] = {}
    for verdict, _ in found:
        of_region = rows.setdefault(verdict.law.region, {})
        of_region.setdefault(verdict.law.name, []).append(SIGNS[verdict.status])
    width = max(len(verdict.law.name) for verdict, _ in found) + 4
    columns = [max(len(subject.name), 4) + 2 for subject in subjects]

    def line(first: str, cells: list[str]) -> str:
        padded = "".join(cell.ljust(column) for cell, column in zip(cells, columns, strict=True))
        return f"{first:<{width}}{padded}".rstrip()

    lines = [line("", [subject.name for subject in subjects])]
    for region, laws in rows.items():
        lines += [region, *(line(f"  {name}", signs) for name, signs in laws.items())]
    return lines


def summary(found: list[Judged]) -> list[str]:
    """What came of it in numbers, and why laws do not apply."""
    verdicts = [verdict for verdict, _ in found]
    held, broken = (sum(verdict.status == status for verdict in verdicts) for status in ("pass", "fail"))
    lines = ["", f"{held} hold, {broken} broken, {len(verdicts) - held - broken} do not apply (-)"]
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.status == "n/a":
            reasons.setdefault(verdict.reason, []).append(verdict.subject.name)
    for reason, names in reasons.items():
        lines.append(f"  {len(names)}: {reason} ({', '.join(dict.fromkeys(names))})")
    return lines


def reports(found: list[Judged]) -> list[str]:
    """Each broken law, with its smallest counterexample."""
    return [f"\n{verdict.report()}" for verdict, _ in found if verdict.status == "fail"]


def record(laws: list[Law], found: list[Judged]) -> dict[str, Any]:
    """The same for programs; an example is Python source."""
    from tinyxp.testing.law import show

    return {
        "laws": [
            {
                "name": law.name,
                "sentence": law.sentence,
                "of": law.of,
                "region": law.region,
                "source": law.source,
            }
            for law in laws
        ],
        "verdicts": [
            {
                "law": verdict.law.name,
                "subject": verdict.subject.name,
                "status": verdict.status,
                "reason": verdict.reason,
                "example": None if verdict.example is None else show(verdict.example),
                "seconds": round(seconds, 3),
            }
            for verdict, seconds in found
        ],
    }
