"""Where two implementations of a decoder part, whether it matters, and why."""

from tinyxp.doctor.comparing import compare
from tinyxp.doctor.diagnosing import diagnose
from tinyxp.doctor.diagnosis import Cause, Diagnosis
from tinyxp.doctor.points import Batch
from tinyxp.doctor.recorded import Recorded, read_trace, write_trace
from tinyxp.doctor.recorder import Recorder, record_torch
from tinyxp.doctor.sides import Side, as_side
from tinyxp.doctor.specs import parse
from tinyxp.doctor.verdicts import Comparison, Row, Token

__all__ = [
    "Batch",
    "Cause",
    "Comparison",
    "Diagnosis",
    "Recorded",
    "Recorder",
    "Row",
    "Side",
    "Token",
    "as_side",
    "compare",
    "diagnose",
    "parse",
    "read_trace",
    "record_torch",
    "write_trace",
]
