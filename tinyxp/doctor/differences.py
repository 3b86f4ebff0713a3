"""The differences of two models: fields of the config, and parameters."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.sides import Side
from tinyxp.dtypes import EPSILON, dtype_name
from tinyxp.shapes import parameter_shapes


class ParameterDifferences(NamedTuple):
    """The parameters that differ by more than the rounding of the side's dtype."""

    shares: dict[str, float]  # name -> the share of its numbers that differ
    common: int  # how many parameters both sides have

    def __bool__(self) -> bool:
        return bool(self.shares)

    def describe(self, it: str) -> str:
        """The first of them in words; ``it`` is the letter of the side."""
        names = list(self.shares)
        some = ", ".join(f"{n} ({self.shares[n]:.3g} of it)" for n in names[:4])
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        count = f"{len(names)} of {self.common} parameters of {it}"
        return f"{count} differ from the other side's: {some}{more}"


def config_differences(base: Side, side: Side, it: str) -> list[str]:
    """A note for each field that two configs set differently."""
    right, theirs = base.config, side.config
    if right is None or theirs is None:
        return []
    return [
        f"config: {name} of {it} is {getattr(theirs, name)!r}, the other side's {getattr(right, name)!r}"
        for name in (field.name for field in fields(Config))
        if getattr(right, name) != getattr(theirs, name)
    ]


def parameter_differences(base: Side, side: Side) -> ParameterDifferences:
    """The parameters that two models do not share; none if one of them has no weights."""
    right, theirs, params = base.weights, side.weights, side.params
    if right is None or theirs is None or params is None:
        return ParameterDifferences({}, 0)
    rounding = EPSILON[dtype_name(params.dtype)]
    shapes = parameter_shapes(right.config)
    common = [name for name in params if name in shapes]
    shares: dict[str, float] = {}
    for name in common:
        x, y = right.read(name), theirs.read(name)
        if x.shape != y.shape:
            shares[name] = 1.0
            continue
        differs = np.abs(x.astype(np.float64) - y) > rounding * np.maximum(np.abs(x), 1e-30)
        if differs.any():
            shares[name] = float(np.mean(differs))
    return ParameterDifferences(shares, len(common))
