"""Which law sees which mutant: every law on every mutant, on NumPy, on all cores."""

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

from tinyxp.testing.law import LAWS, Law
from tinyxp.testing.mutants.loading import copied
from tinyxp.testing.mutants.record import MUTANTS, Mutant
from tinyxp.testing.runner import judge
from tinyxp.testing.subject import Decoder

EXAMPLES = 25
REFERENCES = ("reference", "libraries")
"""Regions of laws that compare with somebody else's numbers."""
UNMOVED = ("text", "checkpoint")
"""Regions of laws that judge nothing of what mutants change."""


@dataclass(frozen=True)
class Fate:
    """What became of one mutant."""

    mutant: Mutant
    killers: tuple[str, ...]  # the laws that it breaks, of those that were tried

    @property
    def own(self) -> tuple[str, ...]:
        """Those of its own region."""
        return tuple(name for name in self.killers if LAWS[name].region == self.mutant.region)

    @property
    def expected(self) -> tuple[str, ...]:
        """Those that were expected."""
        return tuple(name for name in self.killers if name in self.mutant.killers)

    @property
    def properties(self) -> tuple[str, ...]:
        """Those that compare with nobody else's numbers."""
        return tuple(name for name in self.killers if not is_reference(LAWS[name]))


@dataclass(frozen=True)
class Matrix:
    """Every mutant's fate, and the laws that the copy without a change breaks, which must be none."""

    fates: tuple[Fate, ...]
    copy: tuple[str, ...]
    laws: tuple[str, ...]  # those that were tried

    @property
    def survivors(self) -> tuple[str, ...]:
        """The mutants that no law of their own region kills."""
        return tuple(fate.mutant.name for fate in self.fates if not fate.own)

    @property
    def totals(self) -> dict[str, int]:
        """How many mutants there are, and how many are killed: by any law, by one of their own region, by one
        that was expected, by one that needs no reference."""
        return {
            "mutants": len(self.fates),
            "killed": sum(bool(fate.killers) for fate in self.fates),
            "killed by a law of their own region": sum(bool(fate.own) for fate in self.fates),
            "killed by a law that was expected to": sum(bool(fate.expected) for fate in self.fates),
            "killed without reference laws": sum(bool(fate.properties) for fate in self.fates),
        }


def is_reference(law: Law) -> bool:
    """Whether a law compares with another implementation's numbers."""
    return law.is_reference or law.region in REFERENCES


def breaks(subject: Decoder, law: Law, max_examples: int = EXAMPLES) -> bool:
    """Whether a law finds fault with a subject, always in the same cases; warnings are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = judge(law, subject, max_examples=max_examples, derandomize=True, shrink=False)
    return verdict.status == "fail"


def killers(
    mutant: Mutant | None, laws: Iterable[Law], *, max_examples: int = EXAMPLES, fast: bool = False
) -> tuple[str, ...]:
    """Those of ``laws`` that a mutant breaks, or the copy without a change.

    ``fast`` tries those of the mutant's own region alone, the expected ones first, and stops at one.
    """
    subject, found = copied(mutant), []
    if fast and mutant is not None:
        own = [law for law in laws if law.region == mutant.region]
        laws = sorted(own, key=lambda law: law.name not in mutant.killers)
    for law in laws:
        if breaks(subject, law, max_examples):
            found.append(law.name)
            if fast:
                break
    return tuple(found)


def kill_matrix(
    mutants: Sequence[Mutant] | None = None,
    laws: Sequence[Law] | None = None,
    *,
    max_examples: int = EXAMPLES,
    fast: bool = False,
    workers: int | None = None,
    show: Callable[[int, int], None] | None = None,
) -> Matrix:
    """Tries ``laws`` (all that judge what mutants change) on ``mutants`` (all) and on the copy without a
    change, in up to ``max_examples`` cases each, in ``workers`` processes (one a core).

    ``show(done, total)`` is called as they are done; ``fast`` as in ``killers``.
    """
    wanted = list(MUTANTS.values()) if mutants is None else list(mutants)
    tried = [law for law in LAWS.values() if law.region not in UNMOVED] if laws is None else list(laws)
    names = tuple(law.name for law in tried)
    task = partial(_killers, laws=names, max_examples=max_examples, fast=fast)
    tasks = [None, *(mutant.name for mutant in wanted)]
    found: dict[str | None, tuple[str, ...]] = {}
    processes = min(workers or os.cpu_count() or 1, len(tasks))
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of libraries
    others = set(multiprocessing.active_children())
    with TemporaryDirectory() as notes, ProcessPoolExecutor(processes, context, _begin, (notes,)) as pool:
        try:
            for done in as_completed([pool.submit(task, name) for name in tasks]):
                name, broken = done.result()
                found[name] = broken
                if show is not None:
                    show(len(found), len(tasks))
        except BaseException:  # nobody waits for what is under way after Ctrl-C
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
    return Matrix(tuple(Fate(mutant, found[mutant.name]) for mutant in wanted), found[None], names)


def _killers(
    name: str | None, *, laws: Sequence[str], max_examples: int, fast: bool
) -> tuple[str | None, tuple[str, ...]]:
    mutant = None if name is None else MUTANTS[name]
    return name, killers(mutant, [LAWS[law] for law in laws], max_examples=max_examples, fast=fast)


def _begin(notes: str) -> None:
    """Each process leaves interrupts to the parent, and Hypothesis's notes in a folder that goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_hypothesis_home_dir(notes)
