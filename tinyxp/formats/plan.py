"""What becomes of each tensor of a file: one plan that loading follows, describing prints, saving inverts."""

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
from tinyxp.shapes import parameter_shapes

Shapes = Mapping[str, tuple[int, ...]]
KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The floating dtypes by their names in safetensors and in GGUF."""


@dataclass(frozen=True)
class Rule:
    """One tensor of a layout and the parameters in it, one below the other; none where it is skipped."""

    name: str
    targets: tuple[str, ...] = ()
    transposed: bool = False
    """Stored (in, out)."""
    interleaved: int = 0
    """The number of heads where a head's rows are stored as neighbouring pairs: 0, hd/2, 1, hd/2 + 1, ..."""
    skipped: str = ""
    """Why there are no targets."""

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape that the tensor must have in the file."""
        whole = (sum(shapes[t][0] for t in self.targets), *shapes[self.targets[0]][1:])
        return whole[::-1] if self.transposed else whole

    def split(self, array: np.ndarray, shapes: Shapes) -> list[np.ndarray]:
        """The tensor as the file has it -> its parameters, (out, in)."""
        array = array.T if self.transposed else array
        if self.interleaved:
            rows, rest = array.shape[0], array.shape[1:]
            pairs = array.reshape(self.interleaved, rows // self.interleaved // 2, 2, *rest)
            array = pairs.swapaxes(1, 2).reshape(rows, *rest)
        ends = np.cumsum([shapes[t][0] for t in self.targets])
        return np.split(array, ends[:-1])

    def join(self, parts: list[np.ndarray]) -> np.ndarray:
        """The inverse of ``split``, for layouts that do not interleave."""
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return array.T if self.transposed else array

    def steps(self) -> list[str]:
        return (
            [f"skipped: {self.skipped}"] * bool(self.skipped)
            + ["transposed"] * self.transposed
            + [f"rows un-permuted, {self.interleaved} heads"] * bool(self.interleaved)
            + [f"split in {len(self.targets)}"] * (len(self.targets) > 1)
        )


class Tensor(NamedTuple):
    """One tensor of an open file."""

    shape: tuple[int, ...]
    dtype: str
    """As the file calls it: "F32", "Q4_1"."""
    kind: str
    """The floating dtype of its values; "" where they are not read as floating."""
    nbytes: int
    read: Callable[[], np.ndarray]
    """Its values; bfloat16 comes as float32, which holds each of them."""
    steps: tuple[str, ...] = ()


class Weight(NamedTuple):
    """One parameter, not read yet."""

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], np.ndarray]
    """Its values; bfloat16 comes as float32, which holds each of them."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.kind]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file and what becomes of it."""

    name: str
    ours: tuple[str, ...]
    """The parameters that come of it: several for a fused tensor, none for one that is skipped."""
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    """All three as they are in the file."""
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, opened and checked against their config; no weight has been read."""

    path: Path
    config: Config
    rules: tuple[Rule, ...]
    tensors: Mapping[str, Tensor]
    verify: Callable[[], None] = lambda: None
    """Checks what only reading weights can tell; to be called once before they are used."""
    special_ids: Mapping[str, Any] = field(default_factory=dict)
    """bos_token_id and the like, as Hugging Face's config.json has them, where the file says."""

    tokenizer_beside: bool = True
    """Whether a tokenizer in the same folder is this model's: not where the file holds its own."""

    def weights(self) -> dict[str, Weight]:
        """Every parameter by our name. Read in this order, each tensor of the file is read once."""
        shapes = parameter_shapes(self.config)

        @lru_cache(maxsize=1)
        def parts(rule: Rule) -> list[np.ndarray]:
            return rule.split(self.tensors[rule.name].read(), shapes)

        def reader(rule: Rule, i: int) -> Callable[[], np.ndarray]:
            return lambda: parts(rule)[i]

        return {
            target: Weight(shapes[target], self.tensors[rule.name].kind, reader(rule, i))
            for rule in self.rules
            for i, target in enumerate(rule.targets)
        }

    def describe(self) -> list[TensorInfo]:
        """Every tensor in the file's order."""
        rules = {rule.name: rule for rule in self.rules}
        return [
            TensorInfo(
                name,
                rules[name].targets,
                tensor.shape,
                tensor.dtype,
                tensor.nbytes,
                (*(tensor.steps if rules[name].targets else ()), *rules[name].steps()),
            )
            for name, tensor in self.tensors.items()
        ]


def fit(
    path: Path,
    config: Config,
    layout: Callable[[Config], Iterable[Rule]],
    tensors: Mapping[str, Tensor],
    skipped: Callable[[str], str] = lambda name: "",
) -> tuple[Rule, ...]:
    """The rule of every tensor. ``skipped(name)`` says why a tensor outside the layout may be ignored.

    Raises CheckpointError listing the missing and unknown names, or naming the tensor whose shape or dtype
    is wrong.
    """
    # A layout has as many rules as the config says: a config that claims a billion blocks stops here.
    if config.n_layers > len(tensors):
        raise CheckpointError(
            f"{path}: the config says {config.n_layers:,} layers; there are only {len(tensors):,} tensors"
        )
    rules = {rule.name: rule for rule in layout(config)}
    extra = {name: reason for name in tensors if name not in rules and (reason := skipped(name))}
    missing = [name for name in rules if name not in tensors]
    unknown = [name for name in tensors if name not in rules and name not in extra]
    if missing or unknown:
        problems = [
            f"{word} {listed(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names
        ]
        raise CheckpointError(f"{path}: the tensors do not fit the config: {'; '.join(problems)}")
    shapes = parameter_shapes(config)
    for name, rule in rules.items():
        if rule.skipped:
            continue
        if tensors[name].shape != rule.shape(shapes):
            raise CheckpointError(
                f"{path}: tensor {name} has shape {tensors[name].shape}; the config says {rule.shape(shapes)}"
            )
        if not tensors[name].kind:
            raise CheckpointError(
                f"{path}: tensor {name} has dtype {tensors[name].dtype}, which is not read as weights"
            )
    return (*rules.values(), *(Rule(name, skipped=reason) for name, reason in extra.items()))


def listed(names: list[str], limit: int = 20) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
