"""How a run trains, and its learning rate at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tinyxp.checks import as_integer, as_positive, is_number
from tinyxp.dtypes import dtype_name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train, as plain data. The defaults, except ``steps``, are those of the reference run.

    Raise ValueError naming the field for a value outside its limits.
    """

    steps: int
    """Updates."""
    batch: int = 16
    """Windows of an update."""
    peak: float = 3e-3
    """The highest learning rate; see ``rate``."""
    warmup: int = 20
    """Steps up to the peak."""
    floor: float = 0.1
    """The learning rate at the end, as a share of the peak."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the two moments."""
    eps: float = 1e-8
    """AdamW's constant in the denominator."""
    decay: float = 0.1
    """AdamW's weight decay."""
    clip: float = 1.0
    """The largest global norm of a gradient; larger ones are scaled down."""
    micro_batch: int | None = None
    """Windows that are computed at a time, their gradients added up; None: the whole batch."""
    dropout: float = 0.0
    """The share of numbers that training drops."""
    dtype: str | None = None
    """The dtype of the computation; parameters and optimiser keep theirs. None: that of the parameters."""
    evaluate_every: int = 25
    """Steps between evaluations of the held-out windows; the last step is always evaluated."""
    seed: int = 0
    """Of the order of windows and of dropout."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "evaluate_every"):
            self._set(name, as_integer(name, getattr(self, name), low=1))
        for name in ("warmup", "seed"):
            self._set(name, as_integer(name, getattr(self, name), low=0))
        for name in ("peak", "eps", "clip"):
            self._set(name, as_positive(name, getattr(self, name)))
        if not is_number(self.decay) or self.decay < 0:
            raise ValueError(f"decay is {self.decay!r}; it must be a number of 0 or more")
        self._set("decay", float(self.decay))
        for name in ("dropout", "floor"):
            _check_share(name, getattr(self, name), below=1 if name == "dropout" else math.inf)
            self._set(name, float(getattr(self, name)))
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(f"betas is {self.betas!r}; it must be two numbers")
        for beta in self.betas:
            _check_share("betas", beta, below=1)
        self._set("betas", tuple(map(float, self.betas)))
        if self.micro_batch is not None:
            self._set("micro_batch", as_integer("micro_batch", self.micro_batch, low=1))
        if self.dtype is not None:
            self._set("dtype", dtype_name(self.dtype))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def rate(self, step: int) -> float:
        """Return the learning rate of update ``step``, counted from 0.

        peak (step + 1) / warmup during warm-up; then floor + (peak - floor)(1 + cos(pi rho)) / 2. Here rho
        goes from 0, at the first step after warm-up, to 1 at the last, and floor is that share of the peak.
        (Loshchilov & Hutter, 2017.)
        """
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        after = self.steps - 1 - self.warmup
        rho = (step - self.warmup) / after if after > 0 else 1.0
        floor = self.floor * self.peak
        return floor + (self.peak - floor) * (1.0 + math.cos(math.pi * rho)) / 2.0


def _check_share(field: str, value: Any, *, below: float) -> None:
    limit = "to below 1" if below == 1 else "to 1"
    if not is_number(value) or not 0 <= value < below or value > 1:
        raise ValueError(f"{field} has {value!r}; it must be a number from 0 {limit}")
