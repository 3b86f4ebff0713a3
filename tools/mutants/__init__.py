"""Decoders that are wrong in one known way each, to judge the laws by: each must break a law of its region.

``python -m tools.mutants`` judges every law by every mutant.
"""

from . import catalogue  # noqa: F401  # registers them
from .loading import load, load_subject, sources
from .matrix import Fate, Matrix, kill_matrix
from .mutant_registry import MUTANTS, Mutant, Patch, mutant

__all__ = [
    "MUTANTS",
    "Fate",
    "Matrix",
    "Mutant",
    "Patch",
    "kill_matrix",
    "load",
    "load_subject",
    "mutant",
    "sources",
]
