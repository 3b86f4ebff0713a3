"""Reversible changes of a tensor between the form that a file stores and ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

Shape = tuple[int, ...]


class Step(Protocol):
    """One reversible change of a tensor on its way from the file; ``str()`` describes it."""

    @property
    def changes_biases(self) -> bool:
        """Whether the bias of a module is stored in the changed form too, not its matrix alone."""

    def file_shape(self, shape: Shape) -> Shape:
        """Return the shape in the file of a tensor whose shape after the step is ``shape``."""

    def load(self, array: np.ndarray) -> np.ndarray:
        """Change the file's form into ours."""

    def save(self, array: np.ndarray) -> np.ndarray:
        """Invert ``load``."""


@dataclass(frozen=True)
class Transpose:
    """The file stores the matrix (in, out)."""

    changes_biases: ClassVar = False

    def __str__(self) -> str:
        return "transposed"

    def file_shape(self, shape: Shape) -> Shape:
        return shape[::-1]

    def load(self, array: np.ndarray) -> np.ndarray:
        return array.T

    def save(self, array: np.ndarray) -> np.ndarray:
        return array.T


@dataclass(frozen=True)
class Unpermute:
    """The file stores the rows of each head as neighbouring pairs: 0, hd/2, 1, hd/2 + 1, ..."""

    heads: int
    changes_biases: ClassVar = True

    def __str__(self) -> str:
        return f"rows un-permuted, {self.heads} heads"

    def file_shape(self, shape: Shape) -> Shape:
        return shape

    def load(self, array: np.ndarray) -> np.ndarray:
        return self._swap(array, (-1, 2))

    def save(self, array: np.ndarray) -> np.ndarray:
        return self._swap(array, (2, -1))

    def _swap(self, array: np.ndarray, pair: Shape) -> np.ndarray:
        """View each head's rows as a table of that shape and exchange its axes."""
        split = array.reshape(self.heads, *pair, math.prod(array.shape[1:]))
        return split.swapaxes(1, 2).reshape(array.shape)


def transpose(config: Any) -> Step:
    """Return the step of a matrix that is stored (in, out)."""
    return Transpose()


def unpermute_queries(config: Any) -> Step:
    """Return the step of q rows that are stored in pairs."""
    return Unpermute(config.n_heads)


def unpermute_keys(config: Any) -> Step:
    """Return the step of k rows that are stored in pairs."""
    return Unpermute(config.n_kv_heads)
