"""Where two implementations of a decoder part, and whether it matters."""

from tinyxp.comparison.comparing import compare
from tinyxp.comparison.points import Batch
from tinyxp.comparison.recorded import Recorded, read_trace, write_trace
from tinyxp.comparison.recorder import Recorder, record_torch
from tinyxp.comparison.sides import Side, as_side
from tinyxp.comparison.specs import parse
from tinyxp.comparison.verdicts import Comparison, Row, Token

__all__ = [
    "Batch",
    "Comparison",
    "Recorded",
    "Recorder",
    "Row",
    "Side",
    "Token",
    "as_side",
    "compare",
    "parse",
    "read_trace",
    "record_torch",
    "write_trace",
]
