"""The tensors of a file: which parameters each one holds, and the steps from the file's form to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tinyxp.config import Config
from tinyxp.formats.names import Module, Names
from tinyxp.formats.steps import Shape, Step
from tinyxp.shapes import parameter_shapes


@dataclass(frozen=True)
class Rule:
    """One tensor of a file and the parameters in it, one below the other; none if it is skipped."""

    name: str
    targets: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """From the file's form to ours, in order; what they give is split into the targets."""
    skipped: str = ""
    """The reason why there are no targets."""

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """Return the shape that the tensor must have in the file, from the parameters' ``shapes``."""
        shape = (sum(shapes[t][0] for t in self.targets), *shapes[self.targets[0]][1:])
        for step in reversed(self.steps):
            shape = step.file_shape(shape)
        return shape

    def split(self, array: np.ndarray, shapes: Mapping[str, Shape]) -> list[np.ndarray]:
        """Return the parameters, (out, in), that the file's tensor holds."""
        for step in self.steps:
            array = step.load(array)
        ends = np.cumsum([shapes[t][0] for t in self.targets])
        return np.split(array, ends[:-1])

    def join(self, parts: list[np.ndarray]) -> np.ndarray:
        """Return the file's tensor from its parameters: the inverse of ``split``."""
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        for step in reversed(self.steps):
            array = step.save(array)
        return array

    def describe(self) -> list[str]:
        """Say what happens to the tensor when it is loaded, one phrase a step."""
        if self.skipped:
            return [f"skipped: {self.skipped}"]
        splits = [f"split in {len(self.targets)}"] if len(self.targets) > 1 else []
        return [*map(str, self.steps), *splits]


def lay_out(names: Names, config: Config, prefix: str = "") -> Iterator[Rule]:
    """Yield the rule of every tensor that a model of ``config`` has, under names that begin with ``prefix``.

    A module whose parameters the config does not have, such as a bias or a tied head, gives no rule.
    """
    shapes = parameter_shapes(config)

    def rules(module: Module, theirs: str, ours: str) -> Iterator[Rule]:
        for kind in ("weight", "bias"):
            targets = tuple(f"{ours}{name}.{kind}" for name in module.holds)
            if targets[0] in shapes:
                steps = tuple(build(config) for build in module.steps)
                own_steps = tuple(step for step in steps if kind == "weight" or step.changes_biases)
                yield Rule(f"{theirs}{module.name}.{kind}", targets, own_steps)

    for module in names.top:
        yield from rules(module, prefix, "")
    for i in range(config.n_layers):
        for module in names.block:
            yield from rules(module, prefix + names.block_prefix.format(i), f"blocks.{i}.")
    for module in names.last:
        yield from rules(module, "", "")
