"""A model with faults: the trusted weights, and what is changed in every block, in some, or at one point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from tinyxp.doctor.faults.change import Change
from tinyxp.doctor.faults.fault import Fault
from tinyxp.doctor.reference_run import WeightSource
from tinyxp.doctor.traces import Batch
from tinyxp.shapes import parameter_shapes

Changes = tuple[Change, ...]
_shapes = cache(parameter_shapes)


@dataclass(frozen=True)
class Variant:
    """``changes`` hold everywhere, but in the blocks and at the kinds of points that have their own."""

    weights: WeightSource
    batch: Batch
    changes: Changes = ()
    in_block: Mapping[int, Changes] = field(default_factory=dict)
    at_point: Mapping[str, Changes] = field(default_factory=dict)

    def with_faults(self, *faults: Fault) -> Variant:
        """This variant with these faults too, everywhere."""
        more = tuple(fault.change for fault in faults if fault.change is not None)
        batch = self.batch
        for change in more:
            batch = batch if change.inputs is None else change.inputs(batch)
        return replace(
            self,
            batch=batch,
            changes=self.changes + more,
            in_block={i: changes + more for i, changes in self.in_block.items()},
            at_point={kind: changes + more for kind, changes in self.at_point.items()},
        )

    def in_blocks_only(self, blocks: Iterable[int], before: Variant) -> Variant:
        """``before``, with these blocks as they are here."""
        mine = {i: self.changes_in(i) for i in blocks}
        return replace(before, in_block={**before.in_block, **mine})

    def at_point_only(self, kind: str, before: Variant) -> Variant:
        """``before``, with this kind of point as it is here."""
        return replace(before, at_point={**before.at_point, kind: self.changes_at(kind)})

    def changes_in(self, i: int) -> Changes:
        """The changes of block i."""
        return self.in_block.get(i, self.changes)

    def changes_at(self, kind: str) -> Changes:
        """The changes of a kind of point outside of all blocks."""
        return self.at_point.get(kind, self.changes)

    @property
    def layers(self) -> tuple[int, ...]:
        """Which layer of the weights each block loads."""
        orders = [change.layers for change in self.changes if change.layers is not None]
        return orders[-1] if orders else tuple(range(self.weights.config.n_layers))

    @property
    def answered(self) -> slice:
        """The columns of the logits that are returned."""
        columns = [change.answered for change in self.changes if change.answered is not None]
        return columns[-1] if columns else slice(None)

    def stream_point(self, i: int) -> str:
        """The kind of point at which block i hands on the residual stream."""
        return next((c.stream_point for c in self.changes_in(i) if c.reroute is not None), "residual")

    def read(self, name: str) -> np.ndarray:
        """A parameter of the trusted weights. A tied model's ``head.weight`` is its embedding; what the
        model lacks is neutral: biases 0, weights 1."""
        config = self.weights.config
        if name == "head.weight" and config.tie_embeddings:
            return self.weights.read("embed.weight")
        if name in _shapes(config):
            return self.weights.read(name)
        return np.zeros(config.d_model) if name.endswith(".bias") else np.ones(config.d_model)

    def parameter(self, name: str, changes: Changes) -> np.ndarray:
        """A parameter with these changes."""
        x = self.read(name)
        for change in changes:
            x = x if change.parameters is None else change.parameters(name, x, self.read)
        return x
