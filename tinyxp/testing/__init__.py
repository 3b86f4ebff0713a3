"""Laws that every decoder must keep, and what judges this one, a changed one, or yours by them.

``check_model`` judges a function from ids to logits. ``tinyxp check`` judges this decoder on every backend.
"""

import tinyxp.testing.laws  # noqa: F401  # registers them
from tinyxp.testing.checking import check_model, parametrize_with_laws
from tinyxp.testing.draws import Draw
from tinyxp.testing.judging import Law, LawBroken, Verdict, judge
from tinyxp.testing.law_registry import LAWS, law, replay, select
from tinyxp.testing.subjects.backends import subject
from tinyxp.testing.subjects.base import Subject
from tinyxp.testing.subjects.foreign_model import foreign

__all__ = [
    "LAWS",
    "Draw",
    "Law",
    "LawBroken",
    "Subject",
    "Verdict",
    "check_model",
    "foreign",
    "judge",
    "law",
    "parametrize_with_laws",
    "replay",
    "select",
    "subject",
]
