"""Proof of causes: the side's own run, with only the parameters or the values at fault corrected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.case import Case
from tinyxp.doctor.differences import ParameterDifferences
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.points import point_order
from tinyxp.doctor.reference_run import run_reference
from tinyxp.doctor.rounding import measure_errors
from tinyxp.doctor.sides import Side
from tinyxp.doctor.traces import Points, Trace
from tinyxp.dtypes import dtype_name
from tinyxp.params import Params


class Proof(NamedTuple):
    """What was corrected so that the side agrees."""

    what: str  # "parameters" or "values"
    names: tuple[str, ...]

    def describe(self, it: str, other: str) -> str:
        """The proof in words; ``it`` and ``other`` are the letters of the sides."""
        some = ", ".join(self.names[:3]) + (f" and {len(self.names) - 3} more" if len(self.names) > 3 else "")
        if self.what == "parameters":
            return f"with {other}'s own {some} in place of its own, {it} agrees from there on"
        return f"with the right value put in at {some}, {it}'s own run agrees from there on"


def prove(case: Case, points: Sequence[str], different: ParameterDifferences) -> Proof | None:
    """The proof that the causes at these points are all that is wrong; None if there is none."""
    if not points:
        return _prove_by_parameters(case, points, different)
    return _prove_by_parameters(case, points, different) or _prove_by_values(case, points)


def _prove_by_parameters(case: Case, points: Sequence[str], different: ParameterDifferences) -> Proof | None:
    """Replace the parameters that differ: those that the points show, else all of them."""
    if not different or case.side.config != case.weights.config:
        return None
    shown = tuple(name for name in different.shares if points_showing(name) & set(points))
    for names in dict.fromkeys((shown, tuple(different.shares))):
        if names and _agrees(case, _with_right(case, names).trace(case.batch), after=None):
            return Proof("parameters", names)
    return None


def _prove_by_values(case: Case, points: Sequence[str]) -> Proof | None:
    """Replace the values at the points by the right ones on the side's own inputs."""
    own = case.side.trace(case.batch).points if case.side.can_patch else {}
    if not own:
        return None
    right = _right_values(case, points)
    if right.keys() != set(points) or any(own[name].shape != x.shape for name, x in right.items()):
        return None
    patched = case.side.trace(case.batch, patch=right)
    return (
        Proof("values", tuple(points)) if _agrees(case, patched, after=min(points, key=point_order)) else None
    )


def _right_values(case: Case, points: Sequence[str]) -> Points:
    wanted, right = set(points), dict[str, np.ndarray]()

    def tap(name: str, x: np.ndarray) -> np.ndarray:
        if name in wanted:
            right[name] = x
        return x

    run_reference(case.weights, case.batch, tap)
    return right


def _with_right(case: Case, names: Sequence[str]) -> Side:
    """The side with these parameters of the trusted one."""
    params = case.side.params
    assert params is not None
    arrays = dict(params)
    for name in names:
        arrays[name] = params.backend.from_numpy(case.weights.read(name), dtype=dtype_name(params.dtype))
    return case.side.with_params(Params(arrays, params.config))


def points_showing(name: str) -> set[str]:
    """The trace points that a parameter is a factor of."""
    stem, _, _ = name.rpartition(".")
    tables = {"embed": {"embed", "logits"}, "pos_embed": {"embed"}, "head": {"logits"}}
    if stem in tables:
        return tables[stem]
    block, _, ours = stem.rpartition(".attn.") if ".attn." in stem else stem.rpartition(".mlp.")
    matrix = f"attn.{ours}" if ".attn." in stem else f"mlp.{ours}"
    return {f"{block}.{MATRICES[matrix]}"} if matrix in MATRICES else {stem}


def _agrees(case: Case, trace: Trace, *, after: str | None) -> bool:
    """Whether a trace is right except for rounding, from a point on."""
    trace = Trace(trace.points, case.dtype)
    shapes, (errors,) = measure_errors(case.weights, case.batch, [trace])
    names = [name for name in shapes if name in trace.points]
    if after is not None:
        names = [name for name in names if point_order(name) >= point_order(after)]
    return all(name in errors and not errors[name].is_fault for name in names)
