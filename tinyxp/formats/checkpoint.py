"""An open model file: its tensors, the parameters that they become, and whether they fit the config."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyxp.config import Config
from tinyxp.dtypes import ITEMSIZE
from tinyxp.errors import CheckpointError
from tinyxp.formats.rules import Rule
from tinyxp.shapes import parameter_shapes

KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The floating dtypes by their names in safetensors and in GGUF."""


class Tensor(NamedTuple):
    """One tensor of an open file."""

    shape: tuple[int, ...]
    dtype: str
    """The file's name for it: "F32", "Q4_1"."""
    kind: str
    """The floating dtype of its values; "" if they are not read as floating."""
    nbytes: int
    read: Callable[[], np.ndarray]
    """Reads its values; bfloat16 comes as float32, which represents it exactly."""
    steps: tuple[str, ...] = ()
    """What reading does to the values, one phrase a step."""


class Weight(NamedTuple):
    """One parameter, not read yet."""

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], np.ndarray]
    """Reads its values; bfloat16 comes as float32, which represents it exactly."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.kind]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file and what becomes of it."""

    name: str
    ours: tuple[str, ...]
    """The parameters that it holds: several for a fused tensor, none for one that is skipped."""
    shape: tuple[int, ...]
    """In the file, as are dtype and nbytes."""
    dtype: str
    nbytes: int
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, opened and checked against their config; no weight has been read."""

    path: Path
    config: Config
    rules: tuple[Rule, ...]
    tensors: Mapping[str, Tensor]
    verify: Callable[[], None] = lambda: None
    """Checks what only reading weights can tell; call it once before they are used."""
    special_ids: Mapping[str, Any] = field(default_factory=dict)
    """bos_token_id and the like, as Hugging Face's config.json has them, if the file names them."""
    tokenizer_beside: bool = True
    """Whether a tokenizer in the same folder is this model's: not if the file holds its own."""

    def weights(self) -> dict[str, Weight]:
        """Return every parameter by our name. Read in this order, each tensor of the file is read once."""
        shapes = parameter_shapes(self.config)

        @lru_cache(maxsize=1)
        def split(rule: Rule) -> list[np.ndarray]:
            return rule.split(self.tensors[rule.name].read(), shapes)

        def reader(rule: Rule, i: int) -> Callable[[], np.ndarray]:
            return lambda: split(rule)[i]

        return {
            target: Weight(shapes[target], self.tensors[rule.name].kind, reader(rule, i))
            for rule in self.rules
            for i, target in enumerate(rule.targets)
        }

    def describe(self) -> list[TensorInfo]:
        """Return what becomes of every tensor, in the file's order."""
        rules = {rule.name: rule for rule in self.rules}
        return [
            TensorInfo(
                name,
                rules[name].targets,
                tensor.shape,
                tensor.dtype,
                tensor.nbytes,
                (*(tensor.steps if rules[name].targets else ()), *rules[name].describe()),
            )
            for name, tensor in self.tensors.items()
        ]


def match_rules(
    path: Path,
    config: Config,
    lay_out: Callable[[Config], Iterable[Rule]],
    tensors: Mapping[str, Tensor],
    reason_to_skip: Callable[[str], str] = lambda name: "",
) -> tuple[Rule, ...]:
    """Return the rule of every tensor, from the layout that ``lay_out`` gives for the config.

    ``reason_to_skip(name)`` says why a tensor outside the layout may be ignored, or "". Raises
    CheckpointError listing the missing and unknown names, or naming the tensor with a wrong shape or dtype.
    """
    # A layout has as many rules as the config says: reject a config that claims a billion blocks first.
    if config.n_layers > len(tensors):
        raise CheckpointError(
            f"{path}: the config says {config.n_layers:,} layers; there are only {len(tensors):,} tensors"
        )
    rules = {rule.name: rule for rule in lay_out(config)}
    skipped = {name: reason for name in tensors if name not in rules and (reason := reason_to_skip(name))}
    missing = [name for name in rules if name not in tensors]
    unknown = [name for name in tensors if name not in rules and name not in skipped]
    if missing or unknown:
        lists = {"missing": missing, "unknown": unknown}
        problems = [f"{word} {list_names(names)}" for word, names in lists.items() if names]
        raise CheckpointError(f"{path}: the tensors do not fit the config: {'; '.join(problems)}")
    shapes = parameter_shapes(config)
    for name, rule in rules.items():
        if rule.targets:
            _check_tensor(path, name, tensors[name], rule.shape(shapes))
    return (*rules.values(), *(Rule(name, skipped=reason) for name, reason in skipped.items()))


def _check_tensor(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise CheckpointError(f"{path}: tensor {name} has shape {tensor.shape}; the config says {shape}")
    if not tensor.kind:
        raise CheckpointError(f"{path}: tensor {name} has dtype {tensor.dtype}, which is not read as weights")


def list_names(names: list[str], limit: int = 20) -> str:
    """Return up to ``limit`` names, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
