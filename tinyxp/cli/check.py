"""``tinyxp check``: the laws of a decoder, judged on every backend."""

from __future__ import annotations

import json
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tinyxp.cli.progress import counted
from tinyxp.plugins import DEFAULT_BACKENDS

if TYPE_CHECKING:
    from tinyxp.testing import Law, Subject, Verdict

SIGNS = {"pass": "pass", "fail": "FAIL", "n/a": "-"}


class Judgement(NamedTuple):
    """A verdict, and how long it took."""

    verdict: Verdict
    seconds: float


@click.command()
@click.option(
    "--backend",
    "names",
    metavar="NAMES",
    help="What to judge, separated by commas: backends, a backend with its kernels (NAME+kernels), any "
    f"importable array namespace.  [default: those of {', '.join(DEFAULT_BACKENDS)} that are installed]",
)
@click.option(
    "--laws",
    "pattern",
    metavar="PATTERN",
    default="*",
    show_default=True,
    help="Laws by name, kind or region, such as 'cache' or '*mask*'; separate several by commas.",
)
@click.option(
    "--max-examples", metavar="N", type=int, default=20, show_default=True, help="Cases to draw for each law."
)
@click.option("--all-shapes", is_flag=True, help="Draw all shapes even if each must be compiled: slow.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object: laws and verdicts.")
def check(names: str | None, pattern: str, max_examples: int, all_shapes: bool, as_json: bool) -> int:
    """Judge this decoder by the laws that every decoder must keep.

    Every run draws the same cases. Exit status 0: all laws hold; 1: one is broken; 2: bad input.
    """
    from tinyxp.checks import as_integer

    max_examples = as_integer("max_examples", max_examples, low=1)
    laws, subjects = select_laws_and_subjects(names, pattern, pooled=False if all_shapes else None)
    judgements = judge_all(laws, subjects, max_examples)
    if as_json:
        click.echo(json.dumps(as_record(laws, judgements)))
    else:
        click.echo("\n".join([*table(subjects, judgements), *summary(judgements), *reports(judgements)]))
    return int(any(verdict.status == "fail" for verdict, _ in judgements))


def select_laws_and_subjects(
    names: str | None, pattern: str, pooled: bool | None
) -> tuple[list[Law], list[Subject]]:
    """Return the laws and the subjects that the options name. Raise ValueError for unknown ones."""
    try:
        import tinyxp.testing  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError("'hypothesis' is not installed: pip install 'tinyxp[check]'") from error
    from tinyxp.registry import available_backends
    from tinyxp.testing import select, subject

    if names is None:
        installed = available_backends()
        selected = [name for name in DEFAULT_BACKENDS if installed[name] is not None]
    else:
        selected = list(dict.fromkeys(name.strip() for name in names.split(",")))
    return select(pattern), [subject(name, pooled=pooled) for name in selected]


def judge_all(laws: list[Law], subjects: list[Subject], max_examples: int) -> list[Judgement]:
    """Return the verdicts, law by law."""
    from hypothesis.configuration import set_hypothesis_home_dir

    from tinyxp.testing import judge

    judgements = []
    with TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)  # the default is in the current folder
        for law, subject in counted([(law, subject) for law in laws for subject in subjects], "checking"):
            start = time.perf_counter()
            verdict = judge(law, subject, max_examples=max_examples, derandomize=True)
            judgements.append(Judgement(verdict, time.perf_counter() - start))
        set_hypothesis_home_dir(None)
    return judgements


def table(subjects: list[Subject], judgements: list[Judgement]) -> list[str]:
    """Return a line for each law, under its region, with a column for each subject."""
    rows: dict[str, dict[str, list[str]]] = {}
    for verdict, _ in judgements:
        of_region = rows.setdefault(verdict.law.region, {})
        of_region.setdefault(verdict.law.name, []).append(SIGNS[verdict.status])
    width = max(len(verdict.law.name) for verdict, _ in judgements) + 4
    columns = [max(len(subject.name), 4) + 2 for subject in subjects]

    def line(first: str, cells: list[str]) -> str:
        padded = "".join(cell.ljust(column) for cell, column in zip(cells, columns, strict=True))
        return f"{first:<{width}}{padded}".rstrip()

    lines = [line("", [subject.name for subject in subjects])]
    for region, laws in rows.items():
        lines += [region, *(line(f"  {name}", signs) for name, signs in laws.items())]
    return lines


def summary(judgements: list[Judgement]) -> list[str]:
    """Return the totals, and why laws do not apply."""
    verdicts = [verdict for verdict, _ in judgements]
    held, broken = (sum(verdict.status == status for verdict in verdicts) for status in ("pass", "fail"))
    lines = ["", f"{held} hold, {broken} broken, {len(verdicts) - held - broken} do not apply (-)"]
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.status == "n/a":
            reasons.setdefault(verdict.reason, []).append(verdict.subject.name)
    for reason, names in reasons.items():
        lines.append(f"  {len(names)}: {reason} ({', '.join(dict.fromkeys(names))})")
    return lines


def reports(judgements: list[Judgement]) -> list[str]:
    """Return each broken law with its smallest counterexample."""
    return [f"\n{verdict.report()}" for verdict, _ in judgements if verdict.status == "fail"]


def as_record(laws: list[Law], judgements: list[Judgement]) -> dict[str, Any]:
    """Return laws and verdicts for programs; an example is Python source."""
    from tinyxp.testing.draws import as_source

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
                "example": None if verdict.example is None else as_source(verdict.example),
                "seconds": round(seconds, 3),
            }
            for verdict, seconds in judgements
        ],
    }
