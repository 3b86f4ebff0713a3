"""The values of the side in doubt, and how far variants of the trusted model are from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from statistics import median
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.distance import Distance, excess, measure
from tinyxp.doctor.faults.change import See
from tinyxp.doctor.passes import Passes
from tinyxp.doctor.points import block_of, kind, sort_points
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.rounding import Error, measure_errors, measure_own_errors
from tinyxp.doctor.traces import Batch, Points, Trace, compared_mask
from tinyxp.doctor.variant import Variant
from tinyxp.dtypes import EPSILON

Errors = Mapping[str, Error]
_ENDLESS = Distance(np.inf, np.inf, (), 0.0, 0.0)
INCOMPARABLE = Error(_ENDLESS, _ENDLESS, np.inf)
"""The error at a point that has another shape, or that the variant lacks."""


class Segment(NamedTuple):
    """Steps between two places where the side's residual stream is known: -1 the embedding, then the blocks,
    then the head."""

    first: int
    last: int

    @property
    def is_one_step(self) -> bool:
        return self.first == self.last


class Evidence:
    """What is known of the side in doubt: its values at trace points, with the cost of rounding at each."""

    def __init__(self, weights: WeightSource, batch: Batch, points: Points, dtype: str) -> None:
        self.weights, self.batch, self.points, self.dtype = weights, batch, points, dtype
        self.right = Variant(weights, batch)
        self.n = weights.config.n_layers
        blocks = [i for i in map(block_of, points) if i is not None]
        self.blocks = 1 + max(blocks, default=self.n - 1)  # the side's own
        self.whole = Segment(-1, max(self.n, self.blocks))
        self.segments = self._segments()
        self._passes = Passes()

    def _segments(self) -> tuple[Segment, ...]:
        ends = [-1] if "embed" in self.points else []
        ends += [i for i in range(self.blocks) if f"blocks.{i}.residual" in self.points]
        starts = [-1, *(end + 1 for end in ends)]
        return tuple(map(Segment, starts, [*ends, self.whole.last]))

    def segment_of(self, point: str) -> Segment:
        """The segment that computes a point."""
        return next(s for s in self.segments if self.computes(s, point))

    def computes(self, segment: Segment, point: str) -> bool:
        """Whether a segment computes a point. The last one computes all further blocks that a side has."""
        step = {"embed": -1, "final_norm": self.n, "logits": self.n}.get(point, block_of(point))
        assert step is not None
        return segment.first <= step and (step <= segment.last or self._is_last(segment))

    def _is_last(self, segment: Segment) -> bool:
        return segment in (self.whole, self.segments[-1])

    @cached_property
    def own_noise(self) -> dict[str, Distance]:
        """What rounding costs one operation on the side's own inputs, by point."""
        errors = measure_own_errors(self.weights, self.batch, Trace(self.points, self.dtype))
        return {name: error.noise for name, error in errors.items()}

    @cached_property
    def run_noise(self) -> dict[str, Distance]:
        """What rounding costs a run from the ids to each point."""
        (errors,) = measure_errors(self.weights, self.batch, [Trace(self.points, self.dtype)]).errors
        return {name: error.noise for name, error in errors.items()}

    @cached_property
    def _usual_noise(self) -> float:
        """What rounding usually costs an operation, relative to its result."""
        relative = [noise.rms / noise.scale for noise in self.own_noise.values() if noise.scale > 0.0]
        return median(relative) if relative else EPSILON[self.dtype]

    def error(self, point: str, x: np.ndarray, *, of_run: bool = False) -> Error:
        """The error of the side against x at a point, on its own inputs or in a run from the ids."""
        found, costs = self.points[point], self.run_noise if of_run else self.own_noise
        if found.shape != x.shape:
            return INCOMPARABLE
        distance = measure(found, x, compared_mask(point, x.shape, self.batch))
        noise = costs.get(point) or costs.get(f"blocks.{self.n - 1}.{kind(point)}")
        if noise is None:  # a point, or a shape, that the right model does not have
            usual = self._usual_noise
            noise = distance._replace(rms=usual * distance.scale, worst=usual * distance.largest)
        if noise.scale > 0.0 and np.isfinite(distance.scale):
            noise = noise.scaled(max(1.0, distance.scale / noise.scale))
        return Error(distance, noise, excess(distance, noise, self.dtype))

    def errors(self, v: Variant, segment: Segment) -> Errors:
        """The errors of a variant at the points of a segment, each operation on the side's own inputs."""
        errors: dict[str, Error] = {}

        def see(name: str, x: np.ndarray) -> np.ndarray:
            if name not in self.points:
                return x
            errors[name] = self.error(name, _answered(v, name, x))
            found = self.points[name]
            return x if found.shape != x.shape else found.astype(np.float64)

        self.run(v, segment, see)
        for name in self.points:
            if name not in errors and self.computes(segment, name):
                errors[name] = INCOMPARABLE
        return errors

    def block_errors(self, v: Variant, i: int) -> Errors:
        """The errors of a variant at the points of block i; none if the block's input is not known."""
        segment = self.segment_of(f"blocks.{i}.residual")
        if segment not in (Segment(i, i), Segment(-1, 0)):
            return {}
        return {name: e for name, e in self.errors(v, segment).items() if block_of(name) == i}

    def all_errors(self, v: Variant) -> Errors:
        """The errors of a variant at every point, each operation on the side's own inputs."""
        errors: dict[str, Error] = {}
        for segment in self.segments:
            errors |= self.errors(v, segment)
        return errors

    def run_errors(self, v: Variant) -> Errors:
        """The errors of a variant at every point of a run from the ids."""
        errors: dict[str, Error] = {}

        def see(name: str, x: np.ndarray) -> np.ndarray:
            if name in self.points:
                errors[name] = self.error(name, _answered(v, name, x), of_run=True)
            return x

        self.run(v, self.whole, see)
        return errors

    def value(self, v: Variant, point: str) -> np.ndarray:
        """A variant's value at a point, on the side's own inputs; empty if it has no such point."""
        values: dict[str, np.ndarray] = {}

        def see(name: str, x: np.ndarray) -> np.ndarray:
            values[name] = x
            found = self.points.get(name)
            is_input = found is not None and name != point and found.shape == x.shape
            return found.astype(np.float64) if is_input and found is not None else x

        self.run(v, self.segment_of(point), see)
        return values.get(point, np.zeros(0))

    @np.errstate(all="ignore")  # a broken model may overflow
    def run(self, v: Variant, segment: Segment, see: See) -> None:
        """The steps of a segment, from the side's own residual stream before it."""
        passes, layers = self._passes, len(v.layers)
        is_last = self._is_last(segment)
        x = passes.embed(v, see) if segment.first == -1 else self._stream_before(v, segment.first)
        for i in range(max(segment.first, 0), layers if is_last else min(segment.last + 1, layers)):
            x = passes.block(v, i, x, see)
        if is_last:
            passes.final(v, x, see, logits="logits" in self.points)

    def _stream_before(self, v: Variant, step: int) -> np.ndarray:
        """What a step reads from the residual stream."""
        i = step - 1
        known = "embed" if i < 0 else f"blocks.{i}.residual"
        handed_on = known if i < 0 else f"blocks.{i}.{v.stream_point(i)}"
        return self.points[handed_on if handed_on in self.points else known].astype(np.float64)


def _answered(v: Variant, name: str, x: np.ndarray) -> np.ndarray:
    return x[:, v.answered] if name == "logits" else x


def count_faults(errors: Errors, names: Iterable[str] | None = None) -> int:
    """How many points differ by more than rounding, of all or of these."""
    return sum(errors[name].is_fault for name in (errors if names is None else names) if name in errors)


def explained_points(before: Errors, after: Errors) -> tuple[str, ...]:
    """The points that differ before and no longer after, in order."""
    return tuple(
        n for n in sort_points(before) if before[n].is_fault and not after.get(n, before[n]).is_fault
    )
