"""Proof by healing: the side's own run with parameters, or values, put right; what two sides are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.faults.matrices import MATRICES
from tinyxp.doctor.points import point_order
from tinyxp.doctor.reference_run import run_reference
from tinyxp.doctor.rounding import measure_errors
from tinyxp.doctor.sides import Side
from tinyxp.doctor.traces import Batch, Points, Trace
from tinyxp.dtypes import EPSILON, dtype_name
from tinyxp.params import Params
from tinyxp.shapes import parameter_shapes


class Differences(NamedTuple):
    """Parameters that differ by more than the rounding of the side's dtype: name -> share of its numbers."""

    shares: dict[str, float]
    of: int  # parameters that both have

    def __bool__(self) -> bool:
        return bool(self.shares)

    def words(self, it: str) -> str:
        names = list(self.shares)
        some = ", ".join(f"{n} ({self.shares[n]:.3g} of it)" for n in names[:4]) + (
            f" and {len(names) - 4} more" if len(names) > 4 else ""
        )
        return f"{len(names)} of {self.of} parameters of {it} differ from the other side's: {some}"


class Proof(NamedTuple):
    """What was put right, and that the side agrees then."""

    what: str
    names: tuple[str, ...]

    def words(self, it: str, other: str) -> str:
        some = ", ".join(self.names[:3]) + (f" and {len(self.names) - 3} more" if len(self.names) > 3 else "")
        if self.what == "parameters":
            return f"with {other}'s own {some} in place of its own, {it} agrees from there on"
        return f"with the right value put in at {some}, {it}'s own run agrees from there on"


def config_differences(mine: Config, theirs: Config, it: str) -> list[str]:
    """A note for each field that two configs set differently."""
    return [
        f"config: {f.name} of {it} is {getattr(theirs, f.name)!r}, the other side's {getattr(mine, f.name)!r}"
        for f in fields(Config)
        if getattr(mine, f.name) != getattr(theirs, f.name)
    ]


def parameter_differences(base: Side, side: Side) -> Differences:
    """Which parameters two models do not share; none where one of them has no weights."""
    mine, theirs, params = base.weights, side.weights, side.params
    if mine is None or theirs is None or params is None:
        return Differences({}, 0)
    rounding = EPSILON[dtype_name(params.dtype)]
    shares: dict[str, float] = {}
    shapes = parameter_shapes(mine.config)
    both = [name for name in params if name in shapes]
    for name in both:
        x, y = mine.read(name), theirs.read(name)
        if x.shape != y.shape:
            shares[name] = 1.0
            continue
        apart = np.abs(x.astype(np.float64) - y) > rounding * np.maximum(np.abs(x), 1e-30)
        if apart.any():
            shares[name] = float(np.mean(apart))
    return Differences(shares, len(both))


def heal(
    base: Side,
    side: Side,
    batch: Batch,
    points: Sequence[str],
    different: Differences,
    dtype: str,
) -> Proof | None:
    """The proof that the causes at these points are all that is wrong; None where the side cannot be run
    again, or where it still parts."""
    weights = base.weights
    assert weights is not None
    if different and side.config == weights.config:
        here = tuple(name for name in different.shares if shown_at(name) & set(points))
        for names in dict.fromkeys((here, tuple(different.shares))):
            if names and _agrees(
                base, _replaced(base, side, names).trace(batch).points, batch, dtype, after=None
            ):
                return Proof("parameters", names)
    own = side.trace(batch).points if side.can_patch and points else {}
    if own:
        wanted = set(points)
        right: Points = {}

        def tap(name: str, x: np.ndarray) -> np.ndarray:
            if name in wanted:
                right[name] = x
            return x

        run_reference(weights, batch, tap)
        if right.keys() != wanted or any(own[n].shape != x.shape for n, x in right.items()):
            return None
        if _agrees(
            base, side.trace(batch, patch=right).points, batch, dtype, after=min(points, key=point_order)
        ):
            return Proof("values", tuple(points))
    return None


def _replaced(base: Side, side: Side, names: Sequence[str]) -> Side:
    """The side with these parameters of the trusted one."""
    assert base.weights is not None
    assert side.params is not None
    arrays, backend = dict(side.params), side.params.backend
    for name in names:
        arrays[name] = backend.from_numpy(base.weights.read(name), dtype=dtype_name(side.params.dtype))
    return side.with_params(Params(arrays, side.params.config))


def shown_at(name: str) -> set[str]:
    """The trace points that a parameter is a factor of."""
    stem, _, _ = name.rpartition(".")
    tables = {"embed": {"embed", "logits"}, "pos_embed": {"embed"}, "head": {"logits"}}
    if stem in tables:
        return tables[stem]
    block, _, ours = stem.rpartition(".attn.") if ".attn." in stem else stem.rpartition(".mlp.")
    matrix = f"attn.{ours}" if ".attn." in stem else f"mlp.{ours}"
    return {f"{block}.{MATRICES[matrix]}"} if matrix in MATRICES else {stem}


def _agrees(base: Side, trace: Points, batch: Batch, dtype: str, *, after: str | None) -> bool:
    """Whether a trace is right but for rounding, from a point on."""
    weights = base.weights
    assert weights is not None
    shapes, (errors,) = measure_errors(weights, batch, [Trace(trace, dtype)])
    first = None if after is None else point_order(after)
    names = [n for n in shapes if n in trace and (first is None or point_order(n) >= first)]
    return all(name in errors and errors[name].excess <= 1.0 for name in names)
