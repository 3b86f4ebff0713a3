"""Variants of the small models, and their runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.doctor.models import IDS
from tests.reference import drawn
from tinyxp import Config
from tinyxp.doctor.evidence import Evidence
from tinyxp.doctor.faults import Fault, list_faults
from tinyxp.doctor.passes import Passes
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.traces import Batch
from tinyxp.doctor.variant import Variant

PADDED = Batch(IDS, np.arange(12) >= np.array([[3], [0]]))

Points = dict[str, np.ndarray]


def right_variant(config: Config, batch: Batch | None = None) -> Variant:
    """The right model of a config."""
    return Variant(WeightSource.of_params(drawn(config)), batch or Batch(IDS))


def fault_of(config: Config, key: str) -> Fault:
    """The fault of the catalogue with this key."""
    return next(fault for fault in list_faults(config) if fault.key == key)


def run(v: Variant) -> Points:
    """Every point of a variant's run from the ids."""
    points: Points = {}

    def see(name: str, x: Any) -> np.ndarray:
        points[name] = np.asarray(x)
        return points[name]

    with np.errstate(all="ignore"):
        passes = Passes()
        x = passes.embed(v, see)
        for i in range(len(v.layers)):
            x = passes.block(v, i, x, see)
        passes.final(v, x, see)
    return points


def evidence_of(config: Config, *keys: str, only: str = "") -> Evidence:
    """A side with these faults, in float32: all points, or those whose names end with ``only``."""
    v = right_variant(config)
    points = run(v.with_faults(*(fault_of(config, key) for key in keys)))
    floats = {name: x.astype(np.float32) for name, x in points.items() if name.endswith(only)}
    return Evidence(v.weights, v.batch, floats, "float32")
