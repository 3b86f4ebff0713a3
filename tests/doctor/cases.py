"""Cases: two sides that were compared."""

from __future__ import annotations

from typing import Any

from tests.doctor.models import IDS
from tinyxp.doctor.case import Case
from tinyxp.doctor.comparison import compare_traces
from tinyxp.doctor.specs import as_side
from tinyxp.doctor.traces import Batch


def case_of(a: Any, b: Any) -> Case:
    """The case of two sides on the ids of the small models."""
    a, b, batch = as_side(a, "A"), as_side(b, "B"), Batch(IDS)
    traces = a.trace(batch), b.trace(batch)
    comparison = compare_traces(a, b, batch, *traces)
    base, side, trace = (a, b, traces[1]) if comparison.judged == "B" else (b, a, traces[0])
    return Case(comparison, base, side, base.weights, batch, trace.points, trace.dtype)
