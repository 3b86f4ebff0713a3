"""What a training run is made by, and its learning rate at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tinyxp.checks import as_integer, as_positive, is_number
from tinyxp.dtypes import dtype_name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train: plain data. The defaults but for ``steps`` are those of the book model.

    Fields: ``steps`` updates of ``batch`` windows each; ``peak`` learning rate, ``warmup`` steps up to it,
    and the ``floor`` that it falls to, as a share of it (see ``rate``); ``betas``, ``eps`` and ``decay`` of
    AdamW; ``clip``, the largest global norm of a gradient; ``micro_batch`` windows at a time, whose gradients
    are added up (None: all of a batch at once); ``dropout``, the share of numbers that training leaves out;
    ``dtype`` to compute in, the parameters and the optimiser staying as they are (None: theirs);
    ``evaluate_every`` steps and at the end, the held-out windows are evaluated; ``seed`` of the order of
    windows and of dropout.

    Raises ValueError naming the field for anything else.
    """

    steps: int
    batch: int = 16
    peak: float = 3e-3
    warmup: int = 20
    floor: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    decay: float = 0.1
    clip: float = 1.0
    micro_batch: int | None = None
    dropout: float = 0.0
    dtype: str | None = None
    evaluate_every: int = 25
    seed: int = 0

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
        """The learning rate of update ``step``, counted from 0.

        peak (step + 1) / warmup in the warm-up; then floor + (peak - floor)(1 + cos(pi rho)) / 2 with rho
        from 0, at the first step after it, to 1 at the last, where floor is that share of the peak.
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
