"""Causes that concern a side as a whole, looked for before any point is explained."""

from __future__ import annotations

import numpy as np

from tinyxp.doctor.case import Case
from tinyxp.doctor.diagnosis import Cause, Confidence
from tinyxp.doctor.distance import narrow_dtype
from tinyxp.doctor.front_token import find_front_token, with_front_token


def _whole(case: Case, key: str, says: str, fix: str, point: str, confidence: Confidence) -> Cause:
    """A cause of the side as a whole."""
    return Cause((key,), says, fix, point, tuple(case.points), confidence)


def check_random(case: Case) -> Cause | None:
    """Whether the side answers differently when it is called again with the same ids."""
    if not case.side.can_rerun or list(case.points) != ["logits"]:
        return None  # if more points are known, dropout shows at one
    x, again = case.points["logits"], case.side.trace(case.batch).points.get("logits")
    if again is not None and again.shape == x.shape:
        difference = np.abs(x.astype(np.float64) - again)
        if not np.nanmax(difference, initial=0.0) > 1e-4 * np.nanmax(np.abs(x), initial=0.0):
            return None
    says = f"{case.it} returns other logits for the same ids each time: dropout is on"
    fix = "switch to evaluation mode: model.eval() in torch"
    return _whole(case, "dropout", says, fix, "logits", Confidence.LIKELY)


def check_front_token(case: Case) -> tuple[Cause, Case] | None:
    """Whether the side puts a token in front, and the case with that token in the ids."""
    token = find_front_token(case.weights, case.batch, case.points)
    if token is None:
        return None
    batch, points = with_front_token(case.batch, case.points, token)
    case = case._replace(batch=batch, points=points)
    says = f"{case.it} puts token {token} in front of the ids (a BOS?): it has one column more"
    fix = "put a BOS in front once, or not at all, on both sides"
    key = f"extra token {token} in front"
    return _whole(case, key, says, fix, next(iter(points)), Confidence.LIKELY), case


def check_width(case: Case) -> Cause | None:
    """Whether the side's residual stream has another width, so that no fault makes one model of the other."""
    width = case.weights.config.d_model
    stream = (n for n in case.points if n == "embed" or n.endswith("residual"))
    other = next((n for n in stream if case.points[n].shape[2] != width), None)
    if other is None:
        return None
    theirs = case.points[other].shape[2]
    says = f"{case.it} is another model: its residual stream has width {theirs}, this model's {width}"
    return _whole(case, "another model", says, "compare two sides of one model", other, Confidence.CERTAIN)


def check_dtype(case: Case) -> tuple[Cause, Case] | None:
    """Whether the side computes in fewer digits than its dtype has, and the case with that dtype."""
    narrow, first = narrow_dtype(case.points, case.dtype), case.comparison.first
    if narrow is None or first is None:
        return None
    says = (
        f"{case.it} computes in {narrow}, but returns {case.dtype}: "
        f"nearly all of its values are {narrow} numbers"
    )
    fix = f"compute in {case.dtype}; or, to compare it as {narrow}, {case.side.suggest_dtype(narrow)}"
    key = f"computes in {narrow}"
    return _whole(case, key, says, fix, first.point, Confidence.LIKELY), case._replace(dtype=narrow)
