"""The error of a trace against the reference run, beside the rounding error of a correct implementation."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.distance import Distance, excess, measure
from tinyxp.doctor.reference_run import WeightSource, library_with, run_reference
from tinyxp.doctor.traces import Batch, Points, Trace, compared_mask
from tinyxp.dtypes import EPSILON

WINDOW = 16
"""How many points say what is usual: about one block."""


class Error(NamedTuple):
    """A trace's error at one point."""

    distance: Distance  # from the reference run
    noise: Distance  # of a correct implementation in the trace's dtype
    excess: float  # the distance as a multiple of the rounding limit

    @property
    def is_fault(self) -> bool:
        """Whether rounding does not explain the error."""
        return self.excess > 1.0


Errors = dict[str, Error]


class Measurement(NamedTuple):
    """The errors of several traces against one reference run."""

    shapes: dict[str, tuple[int, ...]]  # of the reference run's points
    errors: tuple[Errors, ...]  # of each trace, at its points of these shapes


class _NarrowRun(NamedTuple):
    """A correct implementation's run in one dtype."""

    points: Points
    factor: float  # to scale its errors by

    def noise(self, name: str, reference: np.ndarray, compared: np.ndarray) -> Distance:
        return measure(self.points[name], reference, compared).scaled(self.factor)


def describe_noise(dtype: str) -> str:
    """Say how the rounding error of a correct implementation in a dtype is measured."""
    run_in = _measured_in(dtype)
    scaled = "" if dtype == run_in else f", {run_in}'s scaled"
    return f"what {dtype} costs a correct implementation here ({library_with(run_in).name}{scaled})"


def _measured_in(dtype: str) -> str:
    """float64 cannot be measured against itself; first-order errors scale with the epsilons."""
    return "float32" if dtype == "float64" else dtype


def _run_narrow(
    weights: WeightSource, batch: Batch, dtype: str, names: Collection[str], inputs: Points | None = None
) -> _NarrowRun:
    """Run the weights in ``dtype``, keeping these points; each operation on ``inputs``, if given."""
    points: Points = {}

    def tap(name: str, x: np.ndarray) -> np.ndarray:
        if name in names:
            points[name] = x
        return x if inputs is None or not _fits(inputs, name, x) else inputs[name]

    run_in = _measured_in(dtype)
    run_reference(weights, batch, tap, dtype=run_in)
    return _NarrowRun(points, EPSILON[dtype] / EPSILON[run_in])


def _fits(points: Points, name: str, x: np.ndarray) -> bool:
    return name in points and points[name].shape == x.shape


def measure_errors(weights: WeightSource, batch: Batch, traces: Sequence[Trace]) -> Measurement:
    """Measure traces of one batch against the float64 run of the weights, from the ids on."""
    names = {name for trace in traces for name in trace.points}
    dtypes = dict.fromkeys(trace.dtype for trace in traces)
    narrow = {dtype: _run_narrow(weights, batch, dtype, names) for dtype in dtypes}
    shapes: dict[str, tuple[int, ...]] = {}
    distances: tuple[dict[str, Distance], ...] = tuple({} for _ in traces)
    noises: dict[str, dict[str, Distance]] = {dtype: {} for dtype in narrow}

    def tap(name: str, reference: np.ndarray) -> np.ndarray:
        shapes[name] = reference.shape
        compared = compared_mask(name, reference.shape, batch)
        for trace, distance in zip(traces, distances, strict=True):
            if _fits(trace.points, name, reference):
                distance[name] = measure(trace.points[name], reference, compared)
        if any(name in distance for distance in distances):
            for dtype, run in narrow.items():
                noises[dtype][name] = run.noise(name, reference, compared)
        return reference

    run_reference(weights, batch, tap)
    usual = {dtype: _raise_to_usual(noise) for dtype, noise in noises.items()}
    return Measurement(
        shapes, tuple(_judge(d, usual[t.dtype], t.dtype) for t, d in zip(traces, distances, strict=True))
    )


def measure_own_errors(weights: WeightSource, batch: Batch, trace: Trace) -> Errors:
    """Measure each operation on the trace's own inputs: the error that it adds, and the noise that it adds.

    A point whose inputs the trace lacks inherits their errors.
    """
    points = trace.points
    narrow = _run_narrow(weights, batch, trace.dtype, points, inputs=points)
    distances: dict[str, Distance] = {}
    noises: dict[str, Distance] = {}

    def tap(name: str, reference: np.ndarray) -> np.ndarray:
        if not _fits(points, name, reference):
            return reference
        compared = compared_mask(name, reference.shape, batch)
        distances[name] = measure(points[name], reference, compared)
        noises[name] = narrow.noise(name, reference, compared)
        return points[name].astype(np.float64)

    run_reference(weights, batch, tap)
    return _judge(distances, _raise_to_usual(noises), trace.dtype)


def _judge(distances: Mapping[str, Distance], noises: Mapping[str, Distance], dtype: str) -> Errors:
    return {
        name: Error(distance, noises[name], excess(distance, noises[name], dtype))
        for name, distance in distances.items()
    }


def _raise_to_usual(noises: Mapping[str, Distance]) -> dict[str, Distance]:
    """Raise each point's noise to the median, relative to the values, of the points up to it.

    If one large number decides the result, its rounding error may happen to be small.
    """
    recent: deque[float] = deque(maxlen=WINDOW)
    raised = {}
    for name, noise in noises.items():
        if noise.scale > 0.0:
            recent.append(noise.rms / noise.scale)
        usual = median(recent) if recent else 0.0
        raised[name] = noise._replace(
            rms=max(noise.rms, usual * noise.scale), worst=max(noise.worst, usual * noise.largest)
        )
    return raised
