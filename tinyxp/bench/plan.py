"""What to measure, and with which parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tinyxp.bench.timing import REST
from tinyxp.checks import as_integer
from tinyxp.config import PRESETS, Config
from tinyxp.engine import engine_backends, engine_of
from tinyxp.formats import load, load_config
from tinyxp.initialization import init
from tinyxp.params import Params
from tinyxp.registry import Backend

LENGTHS = (16, 64, 256, 1024)
BATCHES = (1, 2, 4, 8)
PROMPT = 128
WARMUP = 1
STEPS = 3
"""Measurements of a step for each of a prefill: it is short, and its time matters most."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A model on some backends in some dtypes.

    Raise ValueError naming the field, for example for a prompt as long as the context or too many repeats.
    """

    model: str
    backends: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)
    prompt: int | None = None
    """Tokens; None: 128, or half of the context if that is less."""
    repeats: int = 5
    rest: float = REST
    """Seconds before each measurement."""
    threads: int | None = None
    """The limit that each library was given before it was imported; None: its own choice."""

    def __post_init__(self) -> None:
        context = self.config.max_seq_len
        if self.prompt is not None and as_integer("prompt", self.prompt, low=1) >= context:
            raise ValueError(
                f"prompt is {self.prompt}; it must be below {context}, the context of {self.model}"
            )
        most = (context - WARMUP - 1) // STEPS
        if as_integer("repeats", self.repeats, low=1) > most:
            raise ValueError(
                f"repeats is {self.repeats}; at most {most} fit into {context}, the context of {self.model}"
            )
        for field in ("backends", "dtypes"):
            if not getattr(self, field):
                raise ValueError(f"{field} is empty; it must name at least one")

    @property
    def is_preset(self) -> bool:
        """Whether the model is a preset with random weights. A path of the same name takes precedence."""
        return self.model in PRESETS and not Path(self.model).exists()

    @cached_property
    def config(self) -> Config:
        """The model's config."""
        return Config.preset(self.model) if self.is_preset else load_config(self.model)

    @property
    def prompt_tokens(self) -> int:
        """The length of the prompt."""
        return self.prompt or min(PROMPT, max(1, self.config.max_seq_len // 2))

    @property
    def lengths(self) -> list[int]:
        """The lengths of text to measure at, within the context; the prompt's is one of them."""
        within = {length for length in LENGTHS if length <= self.config.max_seq_len}
        return sorted(within | {self.prompt_tokens})

    @property
    def steps(self) -> int:
        """How many steps a decoder takes for one measurement."""
        return WARMUP + STEPS * self.repeats

    def params(self, backend: Backend, dtype: str) -> Params:
        """Return the model's parameters, random ones for a preset.

        Raise ValueError for a dtype that the backend lacks.
        """
        if dtype == "int8":
            return engine_of(backend).quantize(self.params(backend, "float32"))
        if self.is_preset:
            return init(self.config, xp=backend.xp, dtype=dtype)
        return load(self.model, xp=backend.xp, dtype=dtype)


def default_backends() -> tuple[str, ...]:
    """Return the names of the installed backends that have an engine of their own."""
    return tuple(backend.name for backend in engine_backends())
