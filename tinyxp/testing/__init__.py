"""Laws that a decoder must keep, and what judges ours, a changed one, or yours by them.

``check_model`` judges a function from ids to logits; ``tinyxp check`` judges this decoder on every backend.
"""

import tinyxp.testing.laws  # noqa: F401  # registers them
from tinyxp.testing.checking import check_model, parametrize_with_laws
from tinyxp.testing.law import LAWS, Draw, Law, LawBroken, law, select
from tinyxp.testing.runner import Verdict, judge, replay
from tinyxp.testing.subject import Subject
from tinyxp.testing.subjects import foreign, subject

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
