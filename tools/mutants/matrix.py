"""Which law detects which mutant: every law on every mutant, on NumPy, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from hypothesis.configuration import set_hypothesis_home_dir

from tinyxp.testing import LAWS, Law, judge
from tinyxp.testing.subjects.decoder import Decoder

from .loading import load_subject
from .mutant_registry import MUTANTS, Mutant

EXAMPLES = 25
REFERENCES = ("reference", "libraries")
"""Regions of laws that compare with somebody else's numbers."""

UNAFFECTED = ("text", "checkpoint")
"""Regions of laws that judge nothing that mutants change."""


@dataclass(frozen=True)
class Fate:
    """Which laws one mutant breaks."""

    mutant: Mutant
    killers: tuple[str, ...]  # of the laws that were tried

    @property
    def own(self) -> tuple[str, ...]:
        """Return the killers of the mutant's own region."""
        return tuple(name for name in self.killers if LAWS[name].region == self.mutant.region)

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the killers that were expected."""
        return tuple(name for name in self.killers if name in self.mutant.killers)

    @property
    def properties(self) -> tuple[str, ...]:
        """Return the killers that compare with no other implementation."""
        return tuple(name for name in self.killers if not is_reference(LAWS[name]))


@dataclass(frozen=True)
class Matrix:
    """Every mutant's fate, and the laws that the unchanged copy breaks, which must be none."""

    fates: tuple[Fate, ...]
    copy: tuple[str, ...]
    laws: tuple[str, ...]  # the laws that were tried

    @property
    def survivors(self) -> tuple[str, ...]:
        """Return the mutants that no law of their own region kills."""
        return tuple(fate.mutant.name for fate in self.fates if not fate.own)

    @property
    def totals(self) -> dict[str, int]:
        """Return how many mutants there are, and how many are killed by which kind of law."""
        return {
            "mutants": len(self.fates),
            "killed": sum(bool(fate.killers) for fate in self.fates),
            "killed by a law of their own region": sum(bool(fate.own) for fate in self.fates),
            "killed by a law that was expected to": sum(bool(fate.expected) for fate in self.fates),
            "killed without reference laws": sum(bool(fate.properties) for fate in self.fates),
        }


def is_reference(law: Law) -> bool:
    """Return whether a law compares with another implementation's numbers."""
    return law.is_reference or law.region in REFERENCES


def breaks(subject: Decoder, law: Law, max_examples: int = EXAMPLES) -> bool:
    """Return whether a subject breaks a law, always in the same cases; warnings are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = judge(law, subject, max_examples=max_examples, derandomize=True, shrink=False)
    return verdict.status == "fail"


def killers(
    mutant: Mutant | None, laws: Iterable[Law], *, max_examples: int = EXAMPLES, scope: str = "all"
) -> tuple[str, ...]:
    """Return the laws that a mutant, or the unchanged copy, breaks.

    ``scope`` is "all", "region" (only those of the mutant's own region) or "first" (those of its region, the
    expected ones first, up to the first killer).
    """
    subject, broken = load_subject(None if mutant is None else mutant.name), []
    if scope != "all" and mutant is not None:
        own = [law for law in laws if law.region == mutant.region]
        laws = sorted(own, key=lambda law: law.name not in mutant.killers) if scope == "first" else own
    for law in laws:
        if breaks(subject, law, max_examples):
            broken.append(law.name)
            if scope == "first":
                break
    return tuple(broken)


def kill_matrix(
    mutants: Sequence[Mutant] | None = None,
    laws: Sequence[Law] | None = None,
    *,
    max_examples: int = EXAMPLES,
    scope: str = "all",
    workers: int | None = None,
    show: Callable[[int, int], None] | None = None,
) -> Matrix:
    """Try ``laws`` on ``mutants`` and on the unchanged copy, in up to ``max_examples`` cases each.

    The default is all mutants, and all laws that judge what mutants change. ``workers`` is the number of
    processes, by default one for each core. ``show(done, total)`` reports progress. ``scope`` as in
    ``killers``.
    """
    chosen = list(MUTANTS.values()) if mutants is None else list(mutants)
    tried = [law for law in LAWS.values() if law.region not in UNAFFECTED] if laws is None else list(laws)
    names = tuple(law.name for law in tried)
    task = partial(_killers, laws=names, max_examples=max_examples, scope=scope)
    tasks = [None, *(mutant.name for mutant in chosen)]
    broken_by: dict[str | None, tuple[str, ...]] = {}
    processes = min(workers or os.cpu_count() or 1, len(tasks))
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of libraries
    others = set(multiprocessing.active_children())
    with TemporaryDirectory() as folder, ProcessPoolExecutor(processes, context, _begin, (folder,)) as pool:
        try:
            for done in as_completed([pool.submit(task, name) for name in tasks]):
                name, broken = done.result()
                broken_by[name] = broken
                if show is not None:
                    show(len(broken_by), len(tasks))
        except BaseException:  # after Ctrl-C nothing waits for running tasks
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
    return Matrix(tuple(Fate(mutant, broken_by[mutant.name]) for mutant in chosen), broken_by[None], names)


def _killers(
    name: str | None, *, laws: Sequence[str], max_examples: int, scope: str
) -> tuple[str | None, tuple[str, ...]]:
    mutant = None if name is None else MUTANTS[name]
    return name, killers(mutant, [LAWS[law] for law in laws], max_examples=max_examples, scope=scope)


def _begin(folder: str) -> None:
    """Leave interrupts to the parent, and keep Hypothesis's files in a temporary folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_hypothesis_home_dir(folder)
