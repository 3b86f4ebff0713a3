"""What two models are made of, and where that differs: fields of the config, parameters."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from tinyxp.config import Config
from tinyxp.doctor.sides import Model, Side
from tinyxp.dtypes import EPSILON
from tinyxp.params import parameter_shapes


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
        f"config: {f.name} of {it} is {getattr(theirs, f.name)!r}, the other side's {getattr(right, f.name)!r}"
        for f in fields(Config)
        if getattr(right, f.name) != getattr(theirs, f.name)
    ]


def parameter_differences(base: Side, side: Side) -> ParameterDifferences:
    """The parameters that two models do not share; none if one of them has no weights."""
    right, theirs = base.weights, side.weights if isinstance(side, Model) else None
    if right is None or theirs is None:
        return ParameterDifferences({}, 0)
    assert isinstance(side, Model)
    rounding = EPSILON[side.dtype or "float32"]
    shapes = parameter_shapes(right.config)
    common = [name for name in side.params if name in shapes]
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
