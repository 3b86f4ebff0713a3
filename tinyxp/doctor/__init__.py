"""The first difference of two implementations of a decoder, whether it matters, and why."""

from typing import Any

from tinyxp.doctor.comparison import compare
from tinyxp.doctor.diagnosing import diagnose
from tinyxp.doctor.diagnosis import Cause, Confidence, Diagnosis
from tinyxp.doctor.recorder import Recorder, record_module
from tinyxp.doctor.sides import Side
from tinyxp.doctor.specs import as_side, parse
from tinyxp.doctor.trace_files import read_trace, write_trace
from tinyxp.doctor.traces import Batch, Recorded, Trace
from tinyxp.doctor.verdicts import AtFault, Comparison, Row, Token, Verdict
from tinyxp.plugins import RECORDERS, entries

__all__ = [
    "AtFault",
    "Batch",
    "Cause",
    "Comparison",
    "Confidence",
    "Diagnosis",
    "Recorded",
    "Recorder",
    "Row",
    "Side",
    "Token",
    "Trace",
    "Verdict",
    "as_side",
    "compare",
    "diagnose",
    "parse",
    "read_trace",
    "record_module",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """``record_LIBRARY`` is ``record_module`` for each library of the entry-point group tinyxp.recorders."""
    prefix, _, library = name.partition("_")
    if prefix == "record" and library in entries(RECORDERS):
        return record_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
