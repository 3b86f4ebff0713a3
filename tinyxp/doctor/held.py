"""The values of the side in doubt, and how far variants of the trusted model are from them."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import numpy as np

from tinyxp.doctor.choices import F
from tinyxp.doctor.distance import Distance, excess, measure
from tinyxp.doctor.points import block_of, kind
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.rounding import measure_errors, measure_own_errors
from tinyxp.doctor.traces import Batch, Points, Trace, compared_mask
from tinyxp.doctor.variant import Passes, Seen, Variant
from tinyxp.dtypes import EPSILON


class Error(NamedTuple):
    """How far the side is from a variant at one point."""

    excess: float  # how many times what rounding may cost there
    distance: Distance


Errors = dict[str, Error]
ENDLESS = Error(np.inf, Distance(np.inf, np.inf, (), 0.0, 0.0))
"""Of another shape, or not there at all."""


class Segment(NamedTuple):
    """Steps between two places where the side's stream is known: -1 the embedding, blocks, n the head."""

    first: int
    last: int


WHOLE = Segment(-1, 10**9)


class Held:
    """The side's values, and the variants of the trusted model that are held against them."""

    def __init__(
        self,
        weights: WeightSource,
        batch: Batch,
        trace: Points,
        dtype: str,
    ) -> None:
        self.weights, self.batch, self.trace, self.dtype = weights, batch, trace, dtype
        self.passes = Passes()
        self.n = weights.config.n_layers
        self.theirs = 1 + max((i for i in map(block_of, trace) if i is not None), default=self.n - 1)
        self.right = Variant(weights, batch)
        self.segments = self._segments()
        self.noise = self._noise(forced=True)
        relative = [noise.rms / noise.scale for noise in self.noise.values() if noise.scale > 0.0]
        self.usual = median(relative) if relative else EPSILON[dtype]

    def _noise(self, *, forced: bool) -> dict[str, Distance]:
        """What rounding costs at each known point: of one operation on the side's own inputs, or of all of
        the run up to there."""
        trace = Trace(self.trace, self.dtype)
        if forced:
            errors = measure_own_errors(self.weights, self.batch, trace)
        else:
            (errors,) = measure_errors(self.weights, self.batch, [trace]).errors
        return {name: error.noise for name, error in errors.items()}

    def whole(self, v: Variant) -> Errors:
        """How far the side is from a variant at each known point, both from the ids on."""
        errors: Errors = {}
        here, self.noise = self.noise, self._noise(forced=False)
        self.run(v, WHOLE, self.measuring(v, errors))
        self.noise = here
        return errors

    def _segments(self) -> list[Segment]:
        ends = [-1] if "embed" in self.trace else []
        ends += [i for i in range(self.theirs) if f"blocks.{i}.residual" in self.trace]
        found, first = [], -1
        for end in ends:
            found.append(Segment(first, end))
            first = end + 1
        return [*found, Segment(first, max(self.n, self.theirs))]

    def measuring(self, v: Variant, errors: Errors) -> Seen:
        """Sees how far the side is from a variant's own values."""

        def see(name: str, x: F) -> F:
            found = self.trace.get(name)
            if found is not None:
                answer = x[:, slice(*v.kept)] if name == "logits" else x
                errors[name] = self.error(name, answer) if found.shape == answer.shape else ENDLESS
            return x

        return see

    def _forcing(self, v: Variant, errors: Errors) -> Seen:
        """The same, each operation on the side's own inputs."""
        measure_at = self.measuring(v, errors)

        def see(name: str, x: F) -> F:
            measure_at(name, x)
            found = self.trace.get(name)
            return x if found is None or found.shape != x.shape else found.astype(np.float64)

        return see

    def error(self, name: str, x: F) -> Error:
        distance = measure(self.trace[name], x, compared_mask(name, x.shape, self.batch))
        noise = self.noise.get(name) or self.noise.get(f"blocks.{self.n - 1}.{kind(name)}")
        if noise is None:  # a point, or a shape, that the right model does not have
            noise = distance._replace(rms=self.usual * distance.scale, worst=self.usual * distance.largest)
        if noise.scale > 0.0 and np.isfinite(distance.scale):
            noise = noise.scaled(max(1.0, distance.scale / noise.scale))
        return Error(excess(distance, noise, self.dtype), distance)

    def errors(self, v: Variant, segment: Segment) -> Errors:
        """How far the side is from a variant at each known point of a segment, on the side's own inputs."""
        found: Errors = {}
        self.run(v, segment, self._forcing(v, found))
        for name in self.trace:  # what the variant has no place for
            if name not in found and self.holds(segment, name):
                found[name] = ENDLESS
        return found

    def block_errors(self, v: Variant, i: int) -> Errors:
        """The same at the points of one block, whose input is known."""
        segment = next(s for s in self.segments if self.holds(s, f"blocks.{i}.residual"))
        if (segment.first, segment.last) not in ((i, i), (-1, 0)):
            return {}
        found = self.errors(v, segment)
        return {name: error for name, error in found.items() if block_of(name) == i}

    def all_errors(self, v: Variant) -> Errors:
        found: Errors = {}
        for segment in self.segments:
            found |= self.errors(v, segment)
        return found

    def run(self, v: Variant, segment: Segment, see: Seen) -> None:
        """The steps of a segment, from the side's own stream before it."""
        with np.errstate(all="ignore"):  # a broken model may overflow
            self._steps(v, segment, see)

    def _steps(self, v: Variant, segment: Segment, see: Seen) -> None:
        if segment.first == -1:
            x = self.passes.embed(v, see)
        else:
            i = segment.first - 1
            before = "embed" if i < 0 else f"blocks.{i}.residual"
            if i >= 0 and v.chosen(i, "").post_norm:
                before = next(n for n in (f"blocks.{i}.mlp_norm", before) if n in self.trace)
            x = self.trace[before].astype(np.float64)
        last = segment in (WHOLE, self.segments[-1])
        for i in range(max(segment.first, 0), len(v.order) if last else min(segment.last + 1, len(v.order))):
            x = self.passes.block(v, i, x, see)
        if last:
            self.passes.final(v, x, see, logits="logits" in self.trace)

    def holds(self, segment: Segment, point: str) -> bool:
        step = {"embed": -1, "final_norm": self.n, "logits": self.n}.get(point, block_of(point))
        assert step is not None
        last = segment in (WHOLE, self.segments[-1])
        return segment.first <= step and (step <= segment.last or last)

    def right_at(self, v: Variant, point: str) -> F:
        """What a variant has at a point, on the side's own inputs; nothing where it has no such point."""
        segment = next(s for s in self.segments if self.holds(s, point))
        seen: dict[str, F] = {}

        def see(name: str, x: F) -> F:
            seen[name] = x
            found = self.trace.get(name)
            return x if found is None or name == point or found.shape != x.shape else found.astype(np.float64)

        self.run(v, segment, see)
        return seen.get(point, np.zeros(0))
