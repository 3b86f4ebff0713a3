"""Decoders that are wrong in one known way each, to judge the laws by: every one of them must break a law."""

from tinyxp.testing.mutants import (  # noqa: F401
    attention,
    blocks,
    caching,
    choosing,
    generating,
    losses,
    norms,
    positions,
    precision,
)
from tinyxp.testing.mutants.loading import copied, load, sources, subject
from tinyxp.testing.mutants.matrix import Fate, Matrix, kill_matrix
from tinyxp.testing.mutants.record import MUTANTS, Mutant, Patch, mutant

__all__ = [
    "MUTANTS",
    "Fate",
    "Matrix",
    "Mutant",
    "Patch",
    "copied",
    "kill_matrix",
    "load",
    "mutant",
    "sources",
    "subject",
]
